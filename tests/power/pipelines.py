"""Power cuts while pipelines run: of the run itself, and of packages installed meanwhile.

`run` is the recorded process, `check` comes after a cut, in a process that was forked for it.
Both get the folder that is cut, and one with the material, which is not.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import threading
from collections import Counter

from walle_stream.app.assembly import Assembly
from walle_stream.app.local import LocalRun
from walle_stream.app.options import RunOptions
from walle_stream.app.programs.installed import NewVersion
from walle_stream.app.programs.packages import find_task, package_task
from walle_stream.app.queries.query import canonical_state, features_lines, run_state
from walle_stream.cli.__main__ import main
from walle_stream.errors import StoreError, WalleError
from walle_stream.store.datadir import DataDir
from walle_stream.store.keys import HEAD_KEY
from walle_stream.store.partition import PartitionStore
from walle_stream.testing.chaos.outcome import difference
from walle_stream.testing.scripted import Gates, pause, write_script
from walle_stream.wire.rows import PartitionHead, RowDecoder

DEFINITION = """
apiVersion: walle/v1
kind: Pipeline
metadata: {name: power}
spec:
  source: SOURCE
  services: {double: {file: cloud.py, function: double}}
  tasks: [{task: visits}]
  runtime: {partitions: 2, batchEvents: 15, activeDevices: 8}
  state: {sync: SYNC, journalEvents: 100}
---
apiVersion: walle/v1
kind: Task
metadata: {name: visits}
spec:
  version: "1"
  script: visits.py
  triggers: [TRIGGERS]
"""
EXIT, SEEN = "{sequence: [page_exit]}", "{sequence: [exposure]}"
SCRIPT = """
def run(ctx, page):
    n = ctx.state.get("n", 0) + 1
    ctx.state.put("n", n)
    ctx.emit({"n": n, "page": page.instance, "events": len(page.events)})
"""
ASKING = """
    ctx.call_cloud("double", {"n": n})

def on_reply(ctx, reply):
    ctx.emit({"asked": reply.call, "value": reply.value})
"""
SERVICE = "def double(call):\n    return {'n': 2 * call.question['n']}\n"
TASK = """
apiVersion: walle/v1
kind: Task
metadata: {name: visits}
spec:
  script: visits.py
  version: v2
  triggers: [{sequence: [page_exit]}]
"""
WAIT_S = 300.0

decode_head = RowDecoder(PartitionHead, "head").decode


class PipelineRun:
    """A whole `walle run`: killed once, run to its end, cut at any moment; then run again."""

    simulator = "{connector: simulator, devices: 20, sessions: 1, payloadBytes: 50}"

    def __init__(self, sync, *, asks=False):
        self._sync, self._asks = sync, asks

    def prepare(self, material):
        text = DEFINITION.replace("SOURCE", self.simulator).replace("SYNC", self._sync)
        text = text.replace("TRIGGERS", f"{EXIT}, {SEEN}")
        (material / "pipeline.yaml").write_text(text)
        (material / "visits.py").write_text(SCRIPT + ASKING * self._asks)
        (material / "cloud.py").write_text(SERVICE)
        code, said = _settled_run(material, material / "reference")
        counters = run_state(material / "reference").counters
        assert (code, counters.task_failures) == (0, 0), said
        assert counters.features > 100
        (material / "reference.json").write_text(json.dumps(self._outcome(material / "reference")))

    def run(self, root, material, promise):
        if "WALLE_CRASH" not in os.environ:
            first = {**os.environ, "WALLE_CRASH": "commit.after:25"}
            subprocess.run([sys.executable, *sys.orig_argv[1:]], check=False, env=first)
        if self._sync != "false":
            _promise_commits(promise)
        code, said = _walle_run(material, root / "data")
        assert code == 0, said
        promise("end")

    def check(self, root, material, promises):
        data = root / "data"
        wanted = json.loads((material / "reference.json").read_text())
        for number, promised in self._commits(promises).items():
            found = _commits_in(data, number)
            if found < promised:
                return (
                    f"{promised} commits of partition {number} were acknowledged, {found} are there"
                )
        if self._sync != "false" and "end" in promises:
            found = list(map(_text, features_lines(data)))
            if not self._asks and found != wanted["features"]:
                return f"the run had ended: {difference({'': found}, {'': wanted['features']})}"
        code, said = _settled_run(material, data)
        found = self._outcome(data)
        if code:
            return f"exit code {code}: {said[-300:]}"
        return difference(_encoded(found), _encoded(wanted))

    def _commits(self, promises):
        pairs = [each.split()[1:] for each in promises if each.startswith("commit ")]
        return {int(number): int(count) for number, count in pairs}  # the last of each

    def _outcome(self, data):
        if not self._asks:
            return {
                "features": list(map(_text, features_lines(data))),
                "state": list(map(_text, canonical_state(data))),
            }
        # a reply comes when it comes: what is compared is each device's features, and that no number is left out
        rows = [json.loads(line) for line in features_lines(data)]
        last = Counter(row["device_id"] for row in rows)
        numbers = all(1 <= row["sequence_number"] <= last[row["device_id"]] for row in rows)
        found = sorted(json.dumps([row["device_id"], row["feature"]]) for row in rows)
        return {"features": found, "numbers": [str(numbers)]}


class Installing:
    """Packages that are installed while a host runs: what is acknowledged is in force."""

    steps = ("first", "second")

    def prepare(self, material):
        text = (
            DEFINITION.replace("SYNC", "true")
            .replace("TRIGGERS", EXIT)
            .replace(
                "SOURCE",
                '{connector: "walle_stream.testing.scripted:CONNECTOR", script: steps.jsonl}',
            )
        )
        (material / "pipeline.yaml").write_text(text)
        (material / "visits.py").write_text(SCRIPT)
        (material / "cloud.py").write_text(SERVICE)
        for step in self.steps:
            folder = material / step
            folder.mkdir()
            (folder / "visits.py").write_text(SCRIPT.replace('"n": n,', f'"n": n, "by": "{step}",'))
            (folder / "task.yaml").write_text(TASK)
        steps = [*_visits(0, 4), pause("first"), *_visits(4, 8), pause("second"), *_visits(8, 12)]
        write_script(material / "steps.jsonl", steps)

    def run(self, root, material, promise):
        run = LocalRun(Assembly.load(material / "pipeline.yaml"), RunOptions(root / "data", 1))
        failures = []
        gates = Gates(material / "steps.jsonl.gates")
        thread = threading.Thread(target=lambda: failures.append(_failure(run)))
        thread.start()
        for step in self.steps:
            assert gates.await_reached(step, WAIT_S)
            version = NewVersion(package_task(find_task(material / step / "task.yaml")))
            refused = run.installation.install(
                {device: {"visits": version} for device in ("a", "b")}
            )
            assert not refused, refused
            promise(step)
            gates.release(step)
        thread.join(WAIT_S)
        assert failures == [None], failures

    def check(self, root, material, promises):
        for step in self.steps:  # a run that was really cut did not come so far
            Gates(material / "steps.jsonl.gates").release(step)
        code, said = _walle_run(material, root / "data")
        if code:
            return f"exit code {code}: {said[-300:]}"
        for device in ("a", "b", "c"):
            rows = [json.loads(line)["feature"] for line in features_lines(root / "data", device)]
            if [row["n"] for row in rows] != list(range(1, 13)):
                return f"device {device} has visits {[row['n'] for row in rows]} instead of 1 to 12"
            for index, step in enumerate(self.steps if device != "c" else ()):
                later = {row.get("by") for row in rows if row["n"] > 4 * (index + 1)}
                if step in promises and not later <= set(self.steps[index:]):
                    return f"{step} was installed on {device}, but later features are by {later}"
        return None


class DataDirectory:
    """A data directory as it is made, and what is written beside the databases."""

    def prepare(self, material):
        """Nothing is needed."""

    def run(self, root, material, promise):
        for number in range(3):
            with self._open(root / str(number)) as opened:
                promise(f"{number} {opened.meta.incarnation}")
                for device in ("a", "b"):
                    opened.add_quarantined("visits", device)
                    promise(f"{number} {device}")
                opened.mark_complete()

    def check(self, root, material, promises):
        for number in range(3):
            promised = [each.split()[1] for each in promises if each[0] == str(number)]
            try:
                with self._open(root / str(number)) as opened:
                    found = [
                        opened.meta.incarnation,
                        *(device for _, device in opened.quarantined()),
                    ]
            except WalleError as error:
                return f"{type(error).__name__}: {error}"
            if found[: len(promised)] != promised:
                return f"promised {promised}, found {found}"
        return None

    def _open(self, path):
        return DataDir.open(path, partition_count=2, pipeline="power", source={"connector": "none"})


def _walle_run(material, data):
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        code = main(["run", str(material / "pipeline.yaml"), "--data-dir", str(data), "--json"])
    return code, said.getvalue()


def _settled_run(material, data):
    # a run waits for replies for some seconds, and on a busy machine the next one takes them
    code, said = _walle_run(material, data)
    last, again = said, iter(range(2))
    while "no reply" in last and next(again, None) is not None:
        _, last = _walle_run(material, data)
    return code, said


def _promise_commits(promise):
    # a commit is promised once its ticket is durable: looked at behind each write
    write, waiting = PartitionStore.write_rows, {}

    def wrapped(store, rows):
        write(store, rows)
        mine = waiting.setdefault(store.path.name, [])
        if HEAD_KEY in rows:
            commits = decode_head(rows[HEAD_KEY]).counters.commits
            mine.append((store.durability.written, f"commit {store.path.name} {commits}"))
        while mine and mine[0][0] <= store.durability.durable():
            promise(mine.pop(0)[1])

    PartitionStore.write_rows = wrapped


def _commits_in(data, number):
    try:
        return run_state(data).heads[number].counters.commits
    except (StoreError, KeyError):
        return 0


def _failure(run):
    try:
        run.run()
    except WalleError as error:
        return error
    return None


def _visits(start, end):
    for number in range(start, end):
        for device in ("a", "b", "c"):
            for kind, at in (("page_enter", 0), ("click", 1), ("page_exit", 500)):
                base = {"device_id": device, "page_id": "shop", "page_instance": str(number)}
                yield {**base, "kind": kind, "event_time_ms": number * 1_000 + at}


def _text(line):
    return line.decode()


def _encoded(outcome):
    return {name: [line.encode() for line in lines] for name, lines in outcome.items()}
