"""What devices report, over a real broker and a worker of the cloud side that is killed."""

import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cloud_truth import merged
from cloud_worker import Worker, wait_until

from tests.unit.deploy.monitoring.reporting import publish
from walle_deploy.monitoring.monitor import Monitor
from walle_deploy.monitoring.reader import HealthReader
from walle_deploy.monitoring.transport import read_batch
from walle_deploy.store.sqlite import SqliteStore
from walle_stream.app.assembly import Assembly
from walle_stream.app.local import LocalRun
from walle_stream.app.options import RunOptions
from walle_stream.app.resources import shipped_configs

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore:unclosed <:ResourceWarning"),
]

FAILING = """
def run(ctx, page):
    if ctx.device_id.endswith("1"):
        raise KeyError("widget")
    ctx.emit({"dwell_ms": page.dwell_ms})
"""
VISITS, DEVICES, PARTITIONS = 40, 8, 4
FIRST_VISITS = 20
FEATURES = 35


def run_pipeline(folder, cluster, topic):
    """Run visits of which every eighth fails, in two runs: each ends with its reports."""
    (folder / "visit.py").write_text(FAILING)
    lines = ["device,time_ms,page,action,item"]
    for number in range(VISITS):
        for action in ("enter", "click", "exit"):
            now = 1_700_000_000_000 + 1_000 * len(lines)
            lines.append(f"phone-{number % DEVICES},{now},product,{action},buy")
    (folder / "visits.csv").write_text("\n".join(lines) + "\n")
    file = folder / "pipeline.yaml"
    file.write_text((shipped_configs() / "template" / "pipeline.yaml").read_text())
    tunnel = f"{{connector: kafka, brokers: ['{cluster.address}'], topic: {topic}}}"
    overrides = [
        f"spec.runtime.partitions={PARTITIONS}",
        f"spec.tunnel={tunnel}",
        "spec.reports={scenario: shop, every: 1h}",
    ]
    for limit in (3 * FIRST_VISITS, None):
        assembly = Assembly.load(file, overrides)
        LocalRun(assembly, RunOptions(folder / "data", assembly.host_count, limit)).run()


@contextmanager
def service(monitor, ends):
    """Count what is posted; answer the first batch not before ``ends`` is set."""
    taken = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            assert self.path == "/v1/reports"
            monitor.take(read_batch(self.rfile.read(int(self.headers["content-length"]))))
            if not taken.is_set():
                taken.set()
                ends.wait()
                return
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", taken
    finally:
        ends.set()
        server.shutdown()
        thread.join()
        server.server_close()


def test_runs_are_counted_once_when_the_worker_is_killed(cluster, tmp_path):
    topic = cluster.topic("features", PARTITIONS)
    run_pipeline(tmp_path, cluster, topic)
    store = SqliteStore(tmp_path / "releases.db")
    publish(store, "1", task="shop/visit")
    monitor, ends = Monitor(store), threading.Event()

    def reports(worker):
        shown = worker.get("/healthz")[1]
        return shown and shown["reports"]

    with service(monitor, ends) as (url, taken):
        with Worker(tmp_path, cluster, topic, "--reports", url) as worker:
            wait_until(taken.is_set, "the first batch", worker)
            # features do not wait for the service
            wait_until(lambda: merged(worker) == FEATURES, "features", worker)
            assert reports(worker)["sent"] == 0
            worker.kill()
        before = monitor.counts.frames
        ends.set()
        with Worker(tmp_path, cluster, topic, "--reports", url) as worker:
            wait_until(
                lambda: (r := reports(worker)) and r["sent"] == 2 * PARTITIONS, "the end", worker
            )
            shown = worker.get("/healthz")[1]
            assert worker.stop() == 0
    health = HealthReader(store).health("shop/visit", "1")
    store.close()
    assert (health.runs, health.failures) == (VISITS, VISITS // DEVICES)
    assert (health.devices, health.failing_devices) == (DEVICES, 1)
    assert monitor.counts.frames_again == before > 0
    assert shown["reports"] == {"sent": 2 * PARTITIONS, "dropped": 0, "waiting": 0}
    assert (shown["counts"]["reports"], shown["counts"]["refused"]) == (2 * PARTITIONS, 0)
