"""Self-protection of a process with VMs: forks, memory, bytes of guests, stopping."""

import ast
import marshal
import sys
from pathlib import Path
from typing import Any

import pytest

from walle_stream.vm.guest.codec import encode_json

pytestmark = pytest.mark.vm

ROOT = Path(__file__).resolve().parents[3]
FINE = "def run(ctx, page): ctx.emit({})"
posix_only = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")

BARE_FORK = """
import _interpreters
made = _interpreters.create(_interpreters.new_config("isolated", gil="own"))
pid = os.fork()
if not pid:
    os._exit(0)
print(os.WIFSIGNALED(os.waitpid(pid, 0)[1]))
"""
FORK = """
import multiprocessing, subprocess
from walle_stream.errors import VmForkError
def forked(how):
    pid = how()
    pid = pid[0] if isinstance(pid, tuple) else pid
    if not pid:
        os._exit(0)
    return os.waitpid(pid, 0)[1]
def by_multiprocessing():
    process = multiprocessing.get_context("fork").Process(target=print)
    process.start()
    process.join()
    return process.exitcode
with VmPool(task(sys.argv[1]), 1) as pool:
    for how in (lambda: forked(os.fork), lambda: forked(os.forkpty), by_multiprocessing):
        try:
            print(how())
        except VmForkError as error:
            print("2 VMs" if "2 live VMs" in str(error) else "1 VMs" if "1 live VMs" in str(error) else error)
    print(subprocess.run([sys.executable, "-c", ""]).returncode)
    spawned = multiprocessing.get_context("spawn").Process(target=len, args=("",))
    spawned.start()
    spawned.join()
    print(spawned.exitcode, pool.run("t", groups("d"))[0].runs[0].ok)
print(forked(os.fork))
"""


@posix_only
def test_fork_is_refused_while_vms_are_alive(run_child: Any) -> None:
    assert run_child(BARE_FORK).stdout == "True\n"  # the child died of a signal
    done = run_child(FORK, FINE)
    assert done.stdout.split("\n") == [*["1 VMs"] * 3, "0", "0 True", "0", ""], done.stderr


def sources() -> list[Path]:
    folders = ("walle_stream", "connectors", "deploy")
    return [path for folder in folders for path in (ROOT / folder).rglob("*.py")]


def test_no_part_of_this_library_forks() -> None:
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Import(names=names):
                    assert "multiprocessing" not in {each.name for each in names}, path
                case ast.ImportFrom(module=module):
                    assert (module or "").split(".")[0] != "multiprocessing", path
                case ast.Attribute(attr=name):
                    assert name not in {"fork", "forkpty"}, path
                case ast.keyword(arg=name):
                    assert name != "preexec_fn", path
                case _:
                    pass


WITHOUT_STOP = """
import logging
from walle_stream.vm import runaway
logging.basicConfig(format="%(message)s")
runaway._NAMES += ("_PyNoSuchName",)
source = "def run(ctx, page):\\n    while ctx.device_id == 'b': pass\\n    ctx.emit({})"
for isolation in ("shared", "device", "process"):
    given = task(source, limits=RunLimits(wall_time_ms=1_500), isolation=isolation)
    with VmPool(given, PoolLimits(warm_vms=1)) as pool:
        results = pool.run("t", groups("a", "b", "c"))
        print([group.runs[0].error for group in results], [m.task for m in pool.machines])
"""


@posix_only
def test_where_interpreters_cannot_be_stopped_tasks_run_in_processes(run_child: Any) -> None:
    done = run_child(WITHOUT_STOP)
    stopped = "['', 'RunStopped', '']"
    machines = ("['t']", "['t', 't', 't']", "['t']")
    assert done.stdout.splitlines() == [f"{stopped} {vms}" for vms in machines], done.stderr
    assert "isolation: process, because this Python lacks _PyNoSuchName" in done.stderr


def test_tasks_in_processes_need_no_interpreters(monkeypatch: Any, page: Any) -> None:
    from walle_stream.vm import pool as pools  # noqa: PLC0415 - next to their only use
    from walle_stream.vm.program import TaskProgram  # noqa: PLC0415 - the same

    monkeypatch.setattr(pools, "ensure_supported", lambda: pytest.fail("nobody asked for one"))
    with pools.VmPool({"t": TaskProgram("t", "v", FINE, "t.py", isolation="process")}, 1) as pool:
        assert pool.run("t", [("d", {}, [(1, 0, page())])])[0].runs[0].ok


BYTES = """
from walle_stream.vm.services import HostServices
source = '''
def run(ctx, page):
    ctx.state.put("k", {"a": [1, ctx.device_id]})
    ctx.log.info("x")
    ctx.emit({"n": 1}, b"xyz")
    if ctx.device_id == "b": raise ValueError("no")
'''
with VmPool(task(source, isolation=sys.argv[1]), PoolLimits(vms=1)) as pool:
    pool.run("t", groups("a", "b"))
    seen = []
    sys.addaudithook(lambda event, _: seen.append(event))
    results = pool.run("t", groups("a", "b", "c")) if sys.argv[1] != "device" else \\
        pool.run("t", groups("a", "b"))
    found = {event for event in seen if event.startswith(("marshal.load", "pickle."))}
    print([group.runs[0].ok for group in results][:2], found)
import marshal
marshal.loads(marshal.dumps(1))
print("marshal.loads" in seen)
"""


@pytest.mark.parametrize("isolation", ["shared", "device", "process"])
def test_a_host_unmarshals_nothing_of_what_a_guest_wrote(run_child: Any, isolation: str) -> None:
    done = run_child(BYTES, isolation)
    assert done.stdout == "[True, False] set()\nTrue\n", done.stderr


def test_equal_values_have_equal_bytes_where_bytes_are_kept() -> None:
    text, same = (str(b"text", "ascii") for _ in range(2))
    once, twice = [text, text], [text, same]
    assert once == twice
    assert marshal.dumps(once) != marshal.dumps(twice)
    assert marshal.dumps(once, 2) == marshal.dumps(twice, 2)
    # a script's state and features
    assert encode_json(once) == encode_json(twice)


ALLOCATES = """
from walle_stream.vm.memory import limit_data
if sys.argv[1] == "limited":
    assert limit_data(400_000_000)
source = "def run(ctx, page): ctx.emit({'n': len(bytes(1_000_000_000 if ctx.device_id == 'b' else 9))})"
with VmPool(task(source), PoolLimits(memory_bytes=400_000_000)) as pool:
    print([group.runs[0].error for group in pool.run("t", groups("a", "b", "c"))])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds private memory")
def test_one_allocation_that_is_too_large_fails_its_run_alone(run_child: Any) -> None:
    assert run_child(ALLOCATES, "bare").stdout == "['', '', '']\n"
    done = run_child(ALLOCATES, "limited")
    assert done.stdout == "['', 'MemoryError', '']\n", done.stderr
