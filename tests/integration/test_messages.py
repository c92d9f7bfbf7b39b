"""``walle send`` without a broker: before, in and after a run, and through ``kill -9``."""

import json
import random
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from threading import Event

import pytest

from walle_stream.app.messages import MessageSender
from walle_stream.app.queries.query import run_state
from walle_stream.app.resources import shipped_configs
from walle_stream.clock import monotonic_ms
from walle_stream.errors import MessageError, StoreError
from walle_stream.store.inbox import inbox_files, read_inbox
from walle_stream.testing.kit import run_pipeline

pytestmark = pytest.mark.integration

SCRIPT = """
def run(ctx, page):
    ctx.state.put("pages", ctx.state.get("pages", 0) + 1)

def on_message(ctx, message):
    count = ctx.state.get("count", 0) + 1
    ctx.state.put("count", count)
    if message.value == "fail":
        raise ValueError("as asked")
    ctx.emit({"id": message.id, "value": message.value, "count": count,
              "pages": ctx.state.get("pages", 0), "at": ctx.clock.now_ms()})
"""


@pytest.fixture
def file(tmp_path):
    shutil.copytree(shipped_configs() / "template", tmp_path / "p")
    (tmp_path / "p" / "visit.py").write_text(SCRIPT)
    return tmp_path / "p" / "pipeline.yaml"


def told(rows):
    found = defaultdict(list)
    for row in rows:
        found[row["device_id"]].append(row["feature"])
    return found


def values(rows, device_id):
    return [each["value"] for each in told(rows)[device_id]]


def until(look):
    deadline_ms, tick = monotonic_ms() + 60_000, Event()
    while not (found := look()):
        assert monotonic_ms() < deadline_ms, "it did not happen in time"
        tick.wait(0.02)
    return found


def test_before_in_and_after_a_run(walle, file, tmp_path):
    data_dir = tmp_path / "d"
    how = ("--data-dir", data_dir)
    walle("send", file, "phone-1", '{"n":\n 1}', *how)
    walle("send", file, "nobody", "1", *how)
    rows = run_pipeline(file, data_dir)
    [first] = told(rows)["phone-1"]
    assert first["value"] == {"n": 1}
    walle("send", file, "--all", '"all"', "--name", "x", *how)
    walle("send", file, "--where", "device=*-2", "-", *how, given='"two"')
    walle("send", file, "--all", '"all"', "--name", "x", *how)
    walle("send", file, "phone-1", '"fail"', *how)
    walle("send", file, "phone-1", '"last"', "--task", "visit", *how)
    rows = run_pipeline(file, data_dir)
    assert values(rows, "phone-1") == [{"n": 1}, "all", "last"]
    assert [each["count"] for each in told(rows)["phone-1"]] == [1, 2, 3]  # not the failed one
    assert values(rows, "phone-2") == ["all", "two"]
    assert not inbox_files(data_dir / "inbox")
    [letter] = walle("dead-letters", "list", "--json", *how).stdout.splitlines()
    letter = json.loads(letter)
    assert (letter["holds"], letter["error"]) == ("message", "ValueError")
    assert '"fail"' in letter["raw"]
    assert "1 messages wait" in walle("status", data_dir).stdout


@pytest.mark.full
def test_while_it_runs(walle, file, tmp_path):
    data_dir, events = tmp_path / "d", tmp_path / "e.jsonl"
    events.write_text("")
    command = [sys.executable, "-m", "walle_stream.cli", "device", file, "--id", "a", "--follow"]
    agent = subprocess.Popen(
        [*map(str, command), "--data-dir", data_dir, "--events", events],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        until((data_dir / "inbox").parent.joinpath("meta.json").exists)
        for n in range(3):
            walle("send", file, "a", str(n), "--data-dir", data_dir)

        def is_taken():
            try:
                return run_state(data_dir).counters.messages == 3
            except StoreError:
                return False

        until(is_taken)
        agent.send_signal(signal.SIGTERM)
        _, errors = agent.communicate(timeout=60)
        assert agent.returncode == 0, errors
    finally:
        agent.kill()
        agent.communicate()
    lines = walle("features", "list", "--data-dir", data_dir, "--json").stdout.splitlines()
    assert values(map(json.loads, lines), "a") == [0, 1, 2]


@pytest.mark.parametrize(
    ("point", "visits"),
    [
        ("commit.before", (3, 9, 4, 6)),
        pytest.param("commit.after", (3, 9, 4, 6), marks=pytest.mark.full),
        pytest.param("vm.after", (1, 2, 1, 1), marks=pytest.mark.full),
    ],
)
def test_kills_lose_and_double_nothing(walle, file, tmp_path, point, visits):
    data_dir, count = tmp_path / "d", 400
    run_pipeline(file, data_dir)
    whose = [("phone-1", "phone-2", "nobody")[n % 3] for n in range(count)]
    lines = [json.dumps({"device_id": who, "value": n}) for n, who in enumerate(whose)]
    (tmp_path / "m.jsonl").write_text("\n".join(lines))
    send = ("send", file, "--lines", tmp_path / "m.jsonl", "--name", "s", "--data-dir", data_dir)
    walle(*send)
    [batch] = inbox_files(data_dir / "inbox")
    data = batch.read_bytes()
    kills = 0
    for visit in (*visits, 0):
        crash = {"WALLE_CRASH": f"{point}:{visit}" if visit else ""}
        done = walle("run", file, "--data-dir", data_dir, environ=crash, check=False)
        kills += done.returncode == -signal.SIGKILL
        assert done.returncode in {0, -signal.SIGKILL}, done.stderr
        batch.write_bytes(data)  # as if it had died before the file was deleted
    walle(*send, "--json")
    rows = run_pipeline(file, data_dir)
    assert kills
    for device_id in ("phone-1", "phone-2"):
        own = [n for n, who in enumerate(whose) if who == device_id]
        assert values(rows, device_id) == own
        assert [each["count"] for each in told(rows)[device_id]] == [*range(1, len(own) + 1)]


def test_lines_of_a_slow_pipe_are_sent_when_it_pauses(file, tmp_path):
    inbox = tmp_path / "d" / "inbox"
    send = ["send", file, "--data-dir", tmp_path / "d", "--lines", "-", "--json"]
    command = [sys.executable, "-m", "walle_stream.cli", *map(str, send)]
    long = "x" * 200_000
    lines = [f'{{"device_id": "phone-1", "value": {json.dumps(v)}}}' for v in (1, long, 3, 4)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as sender:

        def give(text, sent):
            sender.stdin.write(text.encode())
            sender.stdin.flush()
            until(lambda: sum(len(read_inbox(each)) for each in inbox_files(inbox)) == sent)

        try:
            give(lines[0] + "\n" + lines[1][:100_000], 1)
            give(lines[1][100_000:] + "\r\n\n" + lines[2] + "\n", 3)
            said, _ = sender.communicate(lines[3].encode(), timeout=60)
        finally:
            sender.kill()
    assert (sender.returncode, json.loads(said)["messages"]) == (0, 4)
    assert values(run_pipeline(file, tmp_path / "d"), "phone-1") == [1, long, 3, 4]


@pytest.mark.full
def test_a_sender_that_is_killed_sends_the_rest_under_its_name(walle, file, tmp_path):
    data_dir, count = tmp_path / "d", 3_000
    run_pipeline(file, data_dir)
    lines = [json.dumps({"device_id": f"phone-{n % 2 + 1}", "value": n}) for n in range(count)]
    (tmp_path / "m.jsonl").write_text("\n".join(lines))
    send = ["send", file, "--data-dir", data_dir, "--name", "s", "--lines"]
    command = [sys.executable, "-m", "walle_stream.cli", *map(str, send), "-"]
    for end in random.Random(1).sample(range(600, count), 3):
        before = len(inbox_files(data_dir / "inbox"))
        sender = subprocess.Popen(command, stdin=subprocess.PIPE)
        sender.stdin.write("\n".join([*lines[:end], ""]).encode())
        sender.stdin.flush()
        until(lambda before=before: len(inbox_files(data_dir / "inbox")) > before)
        sender.kill()
        sender.communicate()
    walle(*send, tmp_path / "m.jsonl")
    rows = run_pipeline(file, data_dir)
    for index in (1, 2):
        assert values(rows, f"phone-{index}") == [*range(index - 1, count, 2)]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("a", "{"), 2, "no JSON"),
        (("a", '{"k":1,"k":2}'), 2, "no JSON"),
        (("a", "-"), 2, "too large"),
        (("a",), 2, "give DEVICE and JSON"),
        (("a", "1", "2"), 2, "give DEVICE and JSON"),
        (("--all", "a", "1"), 2, "give DEVICE and JSON"),
        (("--where", "os=ios", "1"), 2, "'os' is none of device, task"),
        (("a", "1", "--task", "vist"), 2, "no task 'vist', its tasks are visit"),
        (("--where", "task=vist@1", "1"), 2, "no task 'vist', its tasks are visit"),
        (("--lines", "none.jsonl"), 1, "none.jsonl"),
        (("--lines", "bad.jsonl"), 2, "bad.jsonl:2: "),
        (("--lines", "bad.jsonl", "--all"), 2, "--lines takes messages from the file"),
        (("--colour", "1"), 2, "--colour"),
        (("a", "1", "--set", "spec.nothing=1"), 3, "spec.nothing"),
    ],
)
def test_what_cannot_be_sent_is_one_line(walle, file, tmp_path, arguments, code, says):
    (tmp_path / "bad.jsonl").write_text('{"device_id":"a","value":1}\n{"device":"a"}\n')
    how = {"cwd": tmp_path, "given": '"' + "x" * 1_000_000 + '"', "check": False}
    done = walle("send", file, *arguments, "--data-dir", "d", **how)
    assert done.returncode == code
    # what stands before a line that is wrong was sent
    assert len(inbox_files(tmp_path / "d" / "inbox")) == ("bad.jsonl:2: " in says)
    assert done.stderr.count("\n") == 1
    assert says in done.stderr


@pytest.mark.parametrize("how", ["release service", "installed"])
def test_tasks_that_others_install_get_messages(walle, file, tmp_path, how):
    if how == "installed":
        run_pipeline(file, tmp_path / "d")
        (tmp_path / "d" / "packages").mkdir(exist_ok=True)
        (tmp_path / "d" / "packages" / "one").write_bytes(b"")
    more = () if how == "installed" else ("--set", "spec.reports.scenario=shop")
    walle("send", file, "a", "1", "--task", "other", *more, "--data-dir", tmp_path / "d")
    assert len(inbox_files(tmp_path / "d" / "inbox")) == 1


@pytest.mark.full
def test_another_pipelines_directory_is_refused(walle, file, tmp_path):
    run_pipeline(file, tmp_path / "d")
    other = ("--set", "metadata.name=other")
    done = walle("send", file, "a", "1", *other, "--data-dir", tmp_path / "d", check=False)
    assert (done.returncode, done.stderr.count("\n")) == (6, 1)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "mine").write_text("")
    done = walle("send", file, "a", "1", "--data-dir", tmp_path / "x", check=False)
    assert (done.returncode, done.stderr.count("\n")) == (6, 1)


def test_the_sender_of_programs(file, tmp_path):
    data_dir = tmp_path / "d"
    run_pipeline(file, data_dir)
    with MessageSender(file, data_dir=data_dir) as sender:
        sender.send("phone-1", {"n": 1})
        sender.send_all([2], where={"device": "phone-?", "task": "visit@1"})
        for bad in (object(), float("nan"), {1: 2, "1": 3}):
            with pytest.raises(MessageError, match="the value is no JSON"):
                sender.send("phone-1", bad)
        with pytest.raises(MessageError, match="there is no condition 'os'"):
            sender.send_all(1, where={"os": "ios"})
        with pytest.raises(MessageError, match="NUL"):
            sender.send("a\0", 1)
    rows = run_pipeline(file, data_dir, messages=[("phone-1", 3), ("", 4)])
    assert values(rows, "phone-1") == [{"n": 1}, [2], 3, 4]


def test_a_sender_goes_on_behind_what_arrived(file, tmp_path):
    for count, value in ((0, "one"), (1, "two"), (0, "one again")):
        with MessageSender(file, data_dir=tmp_path / "d", name="mine") as sender:
            sender.count = count
            sender.send("phone-1", value)
    assert values(run_pipeline(file, tmp_path / "d"), "phone-1") == ["one", "two"]
