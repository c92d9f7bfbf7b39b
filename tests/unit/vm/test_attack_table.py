"""Runs the published table of attacks with all guards on."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from walle_stream.errors import ScriptError
from walle_stream.testing.attacks import ATTACKS, ENDS, FAILS, HARMLESS, LOADED, STOPPED, Attack
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.memory import resident_bytes
from walle_stream.vm.pool import PoolLimits, VmPool
from walle_stream.vm.program import TaskProgram, compile_program

pytestmark = pytest.mark.vm

QUICK, LONG = RunLimits(wall_time_ms=200), RunLimits(wall_time_ms=5_000)
WITNESS = "def run(ctx, page): ctx.emit({'seen': ctx.device_id})"


def chosen(*outcomes: str) -> Any:
    found = [attack for attack in ATTACKS if attack.outcome in outcomes]
    return pytest.mark.parametrize("attack", found, ids=[attack.name for attack in found])


@chosen(LOADED)
def test_what_is_refused_when_loaded_never_gets_a_vm(attack: Attack) -> None:
    with pytest.raises(ScriptError, match=r"^t\.py:\d+"):
        compile_program(TaskProgram("t", "v", attack.source, "t.py"))


@chosen(FAILS, STOPPED, HARMLESS)
@pytest.mark.usefixtures("cpu_clock")
def test_what_runs_hurts_nobody_else(attack: Attack, page: Any, tmp_path: Path) -> None:
    path = tmp_path / "made"
    environment, modules = dict(os.environ), set(sys.modules)
    threads = {thread.name for thread in threading.enumerate()}
    limits = QUICK if attack.outcome == STOPPED else LONG
    programs = {
        "t": TaskProgram("t", "v", attack.source, "t.py", limits=limits),
        "witness": TaskProgram("witness", "v", WITNESS, "w.py"),
    }
    bound = resident_bytes() + 200_000_000
    with VmPool(programs, PoolLimits(memory_bytes=bound)) as pool:
        given = {"attack": 1, "path": str(path)}
        groups: Any = [(f"d{n}", {}, [(1, 0, page(given if n == 1 else {}))]) for n in range(3)]
        first, hit, last = (group.runs[0] for group in pool.run("t", groups))
        assert (first.ok, first.emits, last.ok, last.emits) == (True, [(b"{}", b"")]) * 2
        expected = {FAILS: [False], STOPPED: [False], HARMLESS: [True]}[attack.outcome]
        assert [hit.ok] == expected, hit.message
        assert (hit.error == "RunStopped") == (attack.outcome == STOPPED)
        assert pool.run("witness", groups)[1].runs[0].emits == [(b'{"seen":"d1"}', b"")]
        assert (pool.counts.crashes, pool.counts.stuck) == (0, 0)
        again = pool.run("t", groups[:1] + groups[2:])
        assert [group.runs[0].emits for group in again] == [[(b"{}", b"")]] * 2
    assert not path.exists()
    assert dict(os.environ) == environment
    assert set(sys.modules) >= modules
    assert {thread.name for thread in threading.enumerate()} <= threads


HOST = """
import os, sys
from walle_stream.vm.pool import VmPool
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.program import TaskProgram
limits = RunLimits(wall_time_ms=int(sys.argv[2]))
tasks = {"t": TaskProgram("t", "v", sys.argv[1], "t.py", limits=limits)}
row = ("page_exit", "page_exit", 1, 1, {"attack": 1})
group = ("d", {}, [(1, 0, ("p", "i", "none", None, row, [row]))])
pool = VmPool(tasks, 1, lambda task, device: os._exit(77))
pool.run("t", [group])
"""


def _host(attack: Attack, wall_time_ms: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", HOST, attack.source, str(wall_time_ms)]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def test_what_cannot_be_stopped_ends_its_host_and_only_that() -> None:
    ending = [attack for attack in ATTACKS if attack.outcome == ENDS]
    hosts = [_host(attack, 2_000) for attack in ending]
    ends = {attack.name: host.wait(60) for attack, host in zip(ending, hosts, strict=True)}
    for attack in ending:
        if ends[attack.name] == 0:
            # a busy machine: stopped in time, while it was still about to build what cannot be
            ends[attack.name] = _host(attack, 30_000).wait(120)
    # told by the watchdog, or by the kernel, where it is the faster
    crashed = {name for name, end in ends.items() if end in {-signal.SIGSEGV, -signal.SIGBUS}}
    assert crashed <= {"deep iterators", "deep chain"}
    assert {end for name, end in ends.items() if name not in crashed} == {77}


def test_what_ends_its_host_is_contained_when_in_doubt(page: Any) -> None:
    # the endless ones take it all; the harmless first run must end in it on a busy machine, too
    limits = RunLimits(wall_time_ms=2_500)
    for attack in (attack for attack in ATTACKS if attack.outcome == ENDS):
        program = TaskProgram("t", "v", attack.source, "t.py", limits=limits)
        groups: Any = [(f"d{n}", {}, [(1, 0, page({"attack": 1} if n else {}))]) for n in range(2)]
        with VmPool({"t": program}, 1) as pool:
            first, hit = (group.runs[0] for group in pool.run("t", groups, is_doubtful=True))
            assert (first.emits, hit.error) == ([(b"{}", b"")], "Quarantined"), attack.name
            assert [group.runs[0].ok for group in pool.run("t", groups)] == [True, False]


def test_the_published_table_is_this_one() -> None:
    text = (Path(__file__).parents[3] / "docs" / "security.md").read_text(encoding="utf-8")
    rows = [f"| {attack.name} | {attack.tries} | {attack.outcome} |" for attack in ATTACKS]
    attacks = text.partition("## Attacks")[2].partition("\n## ")[0]
    published = [line for line in attacks.splitlines() if line.endswith(" |") and " | " in line]
    assert published[1:] == rows
