"""Reports from real pipelines over the real tunnel; alarms and batches over real HTTP."""

import hashlib
import hmac
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue

import pytest

from tests.integration.scripted_visits import PIPELINE
from tests.unit.deploy.monitoring.reporting import frame, health, publish, report
from walle_deploy.monitoring.alarms import AlarmBoard, AlarmMessage
from walle_deploy.monitoring.definition import AlarmRule, Alarms
from walle_deploy.monitoring.monitor import Monitor
from walle_deploy.monitoring.transport import HttpReportSink, read_batch
from walle_deploy.monitoring.watch import AlarmWatch, FleetView, WatchOptions, watching
from walle_deploy.monitoring.webhook import Webhook, WebhookOptions, sign
from walle_deploy.store.adapters import StoredRows
from walle_deploy.store.sqlite import SqliteStore
from walle_stream.app.assembly import Assembly
from walle_stream.app.local import LocalRun
from walle_stream.app.options import RunOptions
from walle_stream.app.queries.query import canonical_state
from walle_stream.app.resources import shipped_configs
from walle_stream.errors import EnvelopeError
from walle_stream.spec.single import load_single
from walle_stream.testing.scripted import Gates, pause, write_script
from walle_stream.wire.report_batch import BATCH_MAX_BYTES, encode_batch

pytestmark = pytest.mark.integration

TASK = "shop/ipv"
FAILING = """
def run(ctx, page):
    if ctx.device_id.endswith("1"):
        raise KeyError("widget")
    ctx.emit({"dwell_ms": page.dwell_ms})
"""


@pytest.fixture
def store(tmp_path):
    with closing(SqliteStore(tmp_path / "releases.db")) as store:
        publish(store, "v1", "v9")
        publish(store, "1", task="shop/visit")
        yield store


def run_pipeline(file, data_dir, monitor, *overrides, limit=None):
    assembly = Assembly.load(file, ["spec.runtime.partitions=2", *overrides])
    if monitor is not None:
        assembly.report_sink = monitor
    LocalRun(assembly, RunOptions(data_dir, assembly.host_count, limit)).run()


def test_a_pipelines_runs_are_all_reported_and_nothing_else_is_changed(tmp_path, store):
    pipeline = shipped_configs() / "template" / "pipeline.yaml"
    (tmp_path / "visit.py").write_text(FAILING)
    lines = ["device,time_ms,page,action,item"]
    for number in range(40):
        for action in ("enter", "click", "exit"):
            now = 1_700_000_000_000 + 1_000 * len(lines)
            lines.append(f"phone-{number % 8},{now},product,{action},buy")
    (tmp_path / "visits.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "pipeline.yaml").write_text(pipeline.read_text())
    reports = "spec.reports={every: 100ms, scenario: shop}"
    monitor = Monitor(store)
    # a limit, then the rest: what the first run sent last arrives with the second at the latest
    run_pipeline(tmp_path / "pipeline.yaml", tmp_path / "a", monitor, reports, limit=60)
    run_pipeline(tmp_path / "pipeline.yaml", tmp_path / "a", monitor, reports)
    found = health(store, "1", task="shop/visit")
    assert (found.runs, found.failures, found.devices, found.failing_devices) == (40, 5, 8, 1)
    assert found.failure_classes == {"KeyError": 5}
    assert sum(found.latency_us.values()) == pytest.approx(found.device_minutes)
    assert 7 <= sum(found.output_bytes.values()) <= found.device_minutes >= 8
    assert monitor.counts.frames_refused == 0

    run_pipeline(tmp_path / "pipeline.yaml", tmp_path / "b", None)
    assert list(canonical_state(tmp_path / "a")) == list(canonical_state(tmp_path / "b"))


def test_a_version_that_a_device_refuses_counts_as_a_failure_of_it(tmp_path, store):
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "visits.py").write_text("def run(ctx, page):\n    ctx.emit({})\n")
    write_script(tmp_path / "steps.jsonl", [pause("first")])
    gates = Gates(tmp_path / "steps.jsonl.gates")
    overrides = ["spec.reports={every: 100ms, scenario: shop}"]
    assembly = Assembly.load(tmp_path / "pipeline.yaml", overrides)
    with ThreadPoolExecutor(1) as pool:
        assembly.report_sink = Monitor(store)
        run = LocalRun(assembly, RunOptions(tmp_path / "data", 2))
        ended = pool.submit(run.run)
        assert gates.await_reached("first", 60)
        for device in ("phone-0", "phone-1"):
            run.installation.report_refusal(device, TASK, "v9", "not installed: IntegrityError")
        gates.release("first")
        ended.result(60)
    found = health(store, "v9")
    assert (found.devices, found.failing_devices, found.runs) == (2, 2, 2)
    assert found.failure_classes == {"not installed: IntegrityError": 2}


# Killed

COUNTING = """
import sys
from tests.unit.deploy.monitoring.reporting import frame, report
from walle_deploy.monitoring.monitor import Monitor
from walle_deploy.store.opening import open_store

monitor = Monitor(open_store(sys.argv[1]))
for number in range(1, 10**6):
    monitor.take([frame(number, report([(f"d{number}", 1, {"E": 1})]))])
    print(number, flush=True)
"""


def test_a_monitor_that_is_killed_has_what_it_acknowledged_and_counts_nothing_twice(
    tmp_path, store
):
    for least in (20, 60):
        with subprocess.Popen(
            [sys.executable, "-c", COUNTING, str(tmp_path / "releases.db")],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdout=subprocess.PIPE,
        ) as child:
            acknowledged = 0
            for line in child.stdout:
                acknowledged = int(line)
                if acknowledged == least:
                    child.send_signal(signal.SIGKILL)
        stored = health(store).runs
        assert stored in {acknowledged, acknowledged + 1}  # what was not told may be there
        again = [frame(n, report([(f"d{n}", 1, {})])) for n in range(1, stored + 1)]
        assert Monitor(store).take(again) == 0
    again = [frame(n, report([(f"d{n}", 1, {})])) for n in range(1, 101)]
    assert Monitor(store).take(again) == 100 - stored
    assert health(store).devices == 100


# Over HTTP


_LINE = b"HTTP/1.1 200 OK\r\n"
ENDLESS = {
    "headers": (_LINE, b"x: y\r\n"),
    "body": (_LINE + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
}


class Receiver:
    """Answers as told: a status, or ``hang`` until the end."""

    def __init__(self, *answers):
        self.answers, self.requests = Queue(), Queue()
        for answer in answers:
            self.answers.put(answer)
        self.ends = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                answer = 200 if receiver.answers.empty() else receiver.answers.get()
                if answer == "hang":
                    receiver.ends.wait()
                    return
                if answer in ENDLESS:
                    receiver.requests.put((self.path, dict(self.headers), body))
                    head, more = ENDLESS[answer]
                    self.wfile.write(head)
                    with suppress(OSError):
                        while not receiver.ends.wait(0.01):
                            self.wfile.write(more)
                    return
                if answer == "drop":
                    self.connection.close()
                    return
                if callable(answer):
                    answer = answer(body)
                # before the answer, behind which the next request may come at once
                receiver.requests.put((self.path, dict(self.headers), body))
                self.send_response(answer)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def message(number):
    return AlarmMessage(
        id=f"{number}-firing",
        alarm=str(number),
        state="firing",
        rule="r",
        task=TASK,
        version="v2",
        measure="failureRate",
        value=0.1,
        above=0.02,
        since_ms=1,
        at_ms=2,
    )


SECRET = b"0123456789abcdef"
# on a busy machine a receiver may need a second for an answer
QUICK = WebhookOptions(timeout_s=2.0, attempts=6, backoff_s=0.01, backoff_max_s=0.02)


def test_an_alarm_arrives_through_failures_hangs_and_500_signed_and_in_order():
    with Receiver(500, "hang", "drop", 429) as receiver:
        webhook = Webhook(receiver.url + "/hook", SECRET, QUICK)
        webhook.send(message(1))
        webhook.send(message(2))
        found = [receiver.requests.get(timeout=30) for _ in range(4)]
        webhook.close()
    assert (webhook.sent, webhook.dropped) == (2, 0)
    bodies = [json.loads(body) for _, _, body in found]
    assert [each["alarm"] for each in bodies] == ["1", "1", "1", "2"]  # 500, 429, 200; 200
    path, headers, body = found[-1]
    assert (path, headers["walle-alarm"]) == ("/hook", "2-firing")
    time_ms, digest = headers["walle-signature"].removeprefix("t=").split(",sha256=")
    expected = hmac.new(SECRET, time_ms.encode() + b"." + body, hashlib.sha256).hexdigest()
    assert digest == expected


def test_a_receiver_that_never_ends_its_answer_holds_nothing_up():
    with Receiver("body", "headers", 200, "headers") as receiver:
        webhook = Webhook(receiver.url, SECRET, QUICK)
        for number in range(2):
            webhook.send(message(number))
        for _ in range(3):
            receiver.requests.get(timeout=10)
        webhook.send(message(3))
        webhook.close(0.0)
    assert webhook.sent >= 2


def test_what_nobody_takes_is_given_up_and_nobody_waits_for_it():
    with Receiver(404, *[503] * 6, 200) as receiver:
        webhook = Webhook(receiver.url, SECRET, QUICK)
        for number in range(3):
            webhook.send(message(number))
        for _ in range(8):
            receiver.requests.get(timeout=10)
        webhook.close()
        assert (webhook.sent, webhook.dropped) == (1, 2)
    # nobody is there any more, or never answers
    options = WebhookOptions(timeout_s=0.05, attempts=2, backoff_s=0.01, waiting=5)
    with Receiver(*["hang"] * 20) as hanging:
        for url in (receiver.url, hanging.url):
            webhook = Webhook(url, SECRET, options)
            for number in range(100):
                webhook.send(message(number))
            webhook.close(0.0)
            assert (webhook.sent, webhook.dropped) == (0, 100)


def test_a_message_in_hand_at_the_close_is_counted_once():
    has_begun, may_end = threading.Event(), threading.Event()

    class Slow(Webhook):
        def _post(self, _http, _message):
            has_begun.set()
            may_end.wait()
            return 200

    webhook = Slow("http://127.0.0.1:1", SECRET, WebhookOptions(timeout_s=0.01))
    for number in range(3):
        webhook.send(message(number))
    has_begun.wait()
    webhook.close(0.0)
    assert (webhook.sent, webhook.dropped) == (0, 3)
    may_end.set()
    while not webhook.is_idle():
        may_end.wait(0.0)
    assert (webhook.sent, webhook.dropped) == (0, 3)


def test_a_watch_tells_what_it_sees_once_also_after_a_restart(store):
    rule = AlarmRule(name="failing", failure_rate=0.02, min_runs=10)
    told, monitor, options = Queue(), Monitor(store), WatchOptions(StoredRows(store))
    view = FleetView(store, lambda: {(TASK, "v1")})
    watch = AlarmWatch(view, AlarmBoard([rule]), told.put, 0.01, options)
    monitor.take([frame(1, report([("a", 20, {"E": 10})]))])
    begun = told.get(timeout=10)
    watch.close()
    again = AlarmWatch(view, AlarmBoard([rule]), told.put, 1_000, options)
    assert again.look(begun.at_ms + 1) == []
    monitor.take([frame(2, report([("a", 2_000, {})]))])
    [over] = again.look(begun.at_ms + 2)
    again.close()
    assert (begun.state, over.state) == ("firing", "resolved")
    assert over.alarm == begun.alarm


ALARMS = """\
apiVersion: walle/v1
kind: Alarms
metadata: {name: shop}
spec:
  every: 100ms
  webhook: {url: "%s/hook", secret: 0123456789abcdef}
  rules: [{name: failing, tasks: shop/*, failureRate: 0.02, minRuns: 10}]
"""


def test_what_a_definition_asks_for_is_watched_stored_and_told(tmp_path, store):
    file = tmp_path / "alarms.yaml"
    with Receiver() as receiver:
        file.write_text(ALARMS % receiver.url)
        monitor = Monitor(store)
        spec = load_single(file, Alarms).spec
        board = AlarmBoard(spec.rules)
        view = FleetView(store, lambda: {(TASK, "v1")})
        with watching(view, spec, board, WatchOptions(StoredRows(store))):
            monitor.take([frame(1, report([("a", 20, {"E": 10})]))])
            path, headers, body = receiver.requests.get(timeout=10)
        assert health(store).failures == 10
    found = json.loads(body)
    assert path == "/hook"
    assert (found["state"], found["rule"], found["value"]) == ("firing", "failing", 0.5)
    time_ms = int(headers["walle-signature"].removeprefix("t=").partition(",")[0])
    assert headers["walle-signature"] == sign(SECRET, time_ms, body)


def test_frames_reach_a_monitor_over_http_once_whatever_the_service_does(store):
    monitor = Monitor(store)

    def take(body):
        monitor.take(read_batch(body))
        return 200

    def take_and_fail(body):
        monitor.take(read_batch(body))
        return 500

    with Receiver(503, "drop", take_and_fail, take, take) as receiver:
        sink = HttpReportSink(receiver.url, backoff_s=0.01)
        sink.take([frame(n, report([(f"d{n}", 1, {})])) for n in range(3)])
        for _ in range(3):
            receiver.requests.get(timeout=10)
        sink.take([frame(3, report([("d3", 1, {})]))])
        path, _, _ = receiver.requests.get(timeout=10)
        sink.close()
    assert (path, sink.dropped) == ("/v1/reports", 0)
    assert health(store).runs == 4
    assert monitor.counts.frames_again == 3
    # away: nothing waits for it, the oldest go first
    body = len(frame(0, report([("d", 1, {})])).body)
    sink = HttpReportSink(receiver.url, max_bytes=10 * body)
    sink.take([frame(n, report([("d", 1, {})])) for n in range(30)])
    assert sink.dropped == 20
    sink.close(0.0)
    assert sink.dropped == 30


@pytest.mark.parametrize("status", [400, 413])
def test_a_frame_that_is_refused_takes_no_other_along(store, status):
    monitor, refused = Monitor(store), b"no report"

    def take(body):
        try:
            monitor.take(read_batch(body))
        except EnvelopeError:
            return status
        return 200

    frames = [frame(n, report([(f"d{n}", 1, {})])) for n in range(5)]
    bad = frames[2]._replace(incarnation="../../etc", body=refused)
    with Receiver(503, *[take] * 9) as receiver:
        sink = HttpReportSink(receiver.url, backoff_s=0.01)
        sink.take([*frames[:2], bad, *frames[2:]])
        sink.close(10)
    assert (sink.dropped, health(store).runs) == (1, 5)


def test_a_hostile_batch_is_refused_whole(store):
    monitor = Monitor(store)
    good = frame(1, report([("a", 1, {})]))
    for batch in (
        b"",
        b"\xff" * 10,
        encode_batch([good])[:-1],
        encode_batch([good._replace(incarnation="../../etc")]),
        encode_batch([good._replace(number=-1)]),
        b"\x91" * 100_000,
        bytes(BATCH_MAX_BYTES + 1),
    ):
        with pytest.raises(EnvelopeError):
            monitor.take(read_batch(batch))
    assert monitor.counts.frames == 0
