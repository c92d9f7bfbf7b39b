"""A script that got past the guards of its interpreter finds closed doors in its process."""

import json
import logging
import marshal
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from walle_stream.errors import FrameError, VmCrashedError, VmStartError
from walle_stream.vm.frames import encode_groups
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.process import machine as process_machine
from walle_stream.vm.process import settings as process_settings
from walle_stream.vm.process import start as process_start
from walle_stream.vm.process.guard import MEASURES
from walle_stream.vm.process.machine import ProcessMachine, ProcessSettings
from walle_stream.vm.program import CompiledProgram, TaskProgram, compile_program, pack_program

pytestmark = pytest.mark.vm


def ungated(source: str) -> CompiledProgram:
    """A program as after a break-out: compiled as it is, no gate."""
    code = compile(source, "scripts/t.py", "exec")
    program = TaskProgram("t", "v", "", "scripts/t.py")
    return pack_program(program, code, (), shares_globals=False)


@pytest.fixture
def open_machine() -> Iterator[Callable[..., ProcessMachine]]:
    """Makes process VMs; destroyed after the test."""
    machines: list[ProcessMachine] = []

    def open_(program: CompiledProgram | str, **settings: Any) -> ProcessMachine:
        if isinstance(program, str):
            program = compile_program(TaskProgram("t", "v1", program, "scripts/t.py"))
        machines.append(ProcessMachine(program, ProcessSettings(**settings)))
        return machines[-1]

    yield open_
    for machine in machines:
        machine.destroy()


@pytest.fixture
def call(page: Any) -> Callable[..., Any]:
    """Calls a VM with one run."""

    def call_(machine: Any, contents: dict[str, Any]) -> Any:
        groups: Any = [("d", {}, [(1, 7, page(contents))])]
        return machine.call(groups, encode_groups(groups))

    return call_


UNAUDITED = """
TEXT_WINDOW = [0]
def begin(*_): pass
"""


@pytest.fixture
def unaudited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children without an audit hook, which nothing inside them could switch off."""
    modules = dict(marshal.loads(process_start.guest_bundle()))  # noqa: S302 - made here
    modules["walle_guest.auditing"] = compile(UNAUDITED, "<walle_guest.auditing>", "exec")
    monkeypatch.setattr(process_start, "guest_bundle", lambda: marshal.dumps([*modules.items()]))


HOSTILE = """
def run(ctx, page):
    real = ctx.emit.__func__.__globals__["__builtins__"]
    load, dir, exec, hex = real["__import__"], real["dir"], real["exec"], real["hex"]
    os, sys, errno, ctypes, mmap = map(load, ("os", "sys", "errno", "ctypes", "mmap"))
    libc = ctypes.CDLL(None, use_errno=True)
    def checked(value):
        if value == -1: raise real["OSError"](ctypes.get_errno(), "")
        return value
    try:
        {attack}
    except real["OSError"] as error:
        ctx.emit({{"did": errno.errorcode[error.errno]}})
    else:
        ctx.emit({{"did": "done"}})
"""

FILES = {"syscall_filter", "file_limits", "own_user"}
PROCESSES = {"syscall_filter", "no_processes", "file_limits"}
ATTACKS = {
    "read a file": ("os.open('/etc/passwd', os.O_RDONLY)", FILES),
    "write a file": (
        "os.write(os.open(page.trigger['path'], os.O_CREAT | os.O_WRONLY), b'x')",
        FILES,
    ),
    "look at a folder": ("os.stat('/tmp')", {"syscall_filter"}),
    "make a folder": ("os.mkdir(page.trigger['path'])", {"syscall_filter", "own_user"}),
    "delete": ("os.unlink(page.trigger['victim'])", {"syscall_filter", "own_user"}),
    "fork": ("pid = os.fork(); pid or os._exit(0); os.waitpid(pid, 0)", PROCESSES),
    "spawn": ("os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)", PROCESSES),
    "exec": ("os.execv('/no/such/program', ['x'])", {"syscall_filter"}),
    "socket": ("checked(libc.socket(2, 1, 0))", {"syscall_filter", "file_limits"}),
    "signal the host": ("os.kill(page.trigger['host'], 0)", {"syscall_filter", "own_user"}),
    "signal itself": ("os.kill(os.getpid(), 0)", {"syscall_filter"}),
    "trace": ("checked(libc.ptrace(0, 0, 0, 0))", {"syscall_filter"}),
    "code from data": ("mmap.mmap(-1, 4096, prot=mmap.PROT_EXEC | 3)", {"syscall_filter"}),
    "memory file": ("os.memfd_create('x')", {"syscall_filter", "file_limits"}),
    "more files": ("os.dup(1)", {"syscall_filter", "file_limits"}),
    "choose its core": ("os.sched_setaffinity(0, [0])", {"syscall_filter"}),
}


def done_by(machine: Any, call: Any, **contents: Any) -> str:
    (group,) = call(machine, contents)
    (run,) = group.runs
    assert run.ok, run.message
    return json.loads(run.emits[0][0])["did"]


needs_filter = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine not in {"x86_64", "aarch64"},
    reason="the filter of system calls is for Linux on x86-64 and aarch64",
)


@needs_filter
@pytest.mark.parametrize(("attack", "opened"), ATTACKS.values(), ids=ATTACKS.keys())
@pytest.mark.usefixtures("unaudited")
def test_what_gets_past_the_guards_finds_closed_doors(
    open_machine: Any, call: Any, tmp_path: Path, attack: str, opened: set[str]
) -> None:
    program = ungated(HOSTILE.format(attack=attack))
    (tmp_path / "victim").touch()
    contents = {
        "path": str(tmp_path / "made"),
        "victim": str(tmp_path / "victim"),
        "host": os.getpid(),
    }
    assert done_by(open_machine(program), call, **contents) in {"EPERM", "EACCES"}
    assert sorted(each.name for each in tmp_path.iterdir()) == ["victim"]
    # the same code does it where the measures are off: it is they that stop it
    machine = open_machine(program, off=frozenset(opened))
    assert done_by(machine, call, **contents) == ("ENOENT" if "no/such" in attack else "done")


@needs_filter
@pytest.mark.parametrize(
    ("attack", "measure", "others", "error"),
    [
        ("os.open('/etc/passwd', 0)", "file_limits", {"syscall_filter"}, "EMFILE"),
        ("os.write(1, b'x'); os.ftruncate(5, 1 << 20)", "file_limits", {"syscall_filter"}, "EFBIG"),
        ("os.waitpid(os.fork() or os._exit(0), 0)", "no_processes", {"syscall_filter"}, "EAGAIN"),
        ("os.kill(page.trigger['host'], 0)", "own_user", {"syscall_filter"}, "EPERM"),
    ],
)
@pytest.mark.usefixtures("unaudited")
def test_each_layer_holds_without_the_filter(
    open_machine: Any, call: Any, attack: str, measure: str, others: set[str], error: str
) -> None:
    program = ungated(HOSTILE.format(attack=attack))
    machine = open_machine(program, off=frozenset(others))
    if measure not in machine.measures:
        pytest.skip(f"no {measure} for this user")
    assert done_by(machine, call, host=os.getpid()) == error


@needs_filter
@pytest.mark.parametrize(("is_on", "expected"), [(True, "ENETUNREACH"), (False, "done")])
@pytest.mark.usefixtures("unaudited")
def test_the_network_of_the_host_is_not_there(
    open_machine: Any, call: Any, is_on: bool, expected: str
) -> None:
    attack = """
        struct = load('struct')
        fd = checked(libc.socket(2, 1, 0))
        to = struct.pack('=H', 2) + struct.pack('>H', page.trigger['port']) + bytes([127, 0, 0, 1]) + bytes(8)
        checked(libc.connect(fd, to, 16))"""
    off = {"syscall_filter", "file_limits"} | (set() if is_on else {"own_network"})
    machine = open_machine(ungated(HOSTILE.format(attack=attack)), off=frozenset(off))
    if is_on and "own_network" not in machine.measures:
        pytest.skip("this user may not make a network of its own")
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert done_by(machine, call, port=server.getsockname()[1]) == expected


@needs_filter
@pytest.mark.usefixtures("unaudited")
def test_a_child_cannot_cut_the_memory_that_the_host_reads(open_machine: Any, call: Any) -> None:
    program = ungated(HOSTILE.format(attack="[os.ftruncate(fd, 0) for fd in (3, 4, 5)]"))
    machine = open_machine(program, off=frozenset(MEASURES) - {"dies_with_host"})
    assert done_by(machine, call) == "EPERM"


LIES = {
    "no run at hand": "pulse[0] = 0",
    "always a later run": "pulse[0] += 1",
    "a ring too early": "load('os').write(7, b'12345678')",
    "a number from nowhere": "pulse[0] = 2**64 - 1",
}


@needs_filter
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_child_that_lies_about_its_runs_cannot_make_a_call_hang(
    open_machine: Any, call: Any, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    monkeypatch.setattr(process_machine, "OBEY_TIMEOUT_S", 0.2)
    source = f"""
def run(ctx, page):
    load = ctx.emit.__func__.__globals__["__builtins__"]["__import__"]
    pulse = load("sys")._getframe(1).f_locals["self"]._pulse
    while True:
        {lie}
"""
    given = ungated(source)
    machine = open_machine(
        CompiledProgram("t", given.file, given.packed, RunLimits(wall_time_ms=200))
    )
    with pytest.raises(VmCrashedError, match=r"no run ended for|completion mark"):  # no watchdog
        call(machine, {})
    assert machine.run_at_hand in {None, ("d", 1)}


FRAMES = {
    "beyond any size": "2, number, 2**60, 2**60",
    "words alone": "1, number, 20_000_000, 0",
    "words alone, later": "2, number, 20_000_000, 0",
    "beyond the buffer": "1, number, 100_000, 200_000",
    "of another call": "1, number + 1, 0, 0",
    "an unknown status": "9, number, 0, 0",
    "empty": "1, number, 0, 0",
}


@pytest.mark.parametrize("fields", FRAMES.values(), ids=FRAMES.keys())
def test_a_forged_frame_is_an_error_of_its_call(open_machine: Any, call: Any, fields: str) -> None:
    source = f"""
def run(ctx, page):
    load = ctx.emit.__func__.__globals__["__builtins__"]["__import__"]
    caller = load("sys")._getframe(1).f_locals
    outbox, number = caller["self"]._outbox, caller["self"]._order_number
    load("struct").pack_into("<4sIQQQ", outbox, 0, b"WVM1", {fields})
    load("os").write(7, b"12345678")
    while True: pass
"""
    machine = open_machine(ungated(source))
    with pytest.raises((VmCrashedError, FrameError)):
        call(machine, {})


@needs_filter
def test_a_child_that_takes_no_orders_does_not_block_its_host(open_machine: Any, call: Any) -> None:
    machine = open_machine("def run(ctx, page): pass")
    os.kill(machine.pid, signal.SIGSTOP)
    with suppress(BlockingIOError):
        while True:  # as many calls answered without having read a ring
            os.write(machine._wake_fd, bytes(4096))
    with pytest.raises(VmCrashedError, match="takes no orders"):
        call(machine, {})


@needs_filter
def test_a_child_that_was_frozen_ends_its_call(
    open_machine: Any, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_machine, "OBEY_TIMEOUT_S", 0.2)
    program = TaskProgram(
        "t", "v", "def run(ctx, page): pass", "t.py", {}, RunLimits(wall_time_ms=50)
    )
    machine = open_machine(compile_program(program))
    os.kill(machine.pid, signal.SIGSTOP)
    with pytest.raises(VmCrashedError, match="no run ended for"):
        call(machine, {})


def test_the_host_sees_the_measures_that_the_child_names(open_machine: Any) -> None:
    machine = open_machine("def run(ctx, page): pass")
    if sys.platform != "linux":
        return
    status = dict(
        line.split(":\t", 1)
        for line in Path(f"/proc/{machine.pid}/status").read_text(encoding="ascii").splitlines()
    )
    measures = machine.measures
    assert set(measures) <= set(MEASURES)
    assert ("syscall_filter" in measures) == (status["Seccomp"].strip() == "2")
    assert ("no_new_privileges" in measures) == (status["NoNewPrivs"].strip() == "1")
    assert ("own_user" in measures) == (int(status["Uid"].split()[0]) != os.getuid())
    if "own_user" in measures:
        assert status["Groups"].strip() == ""
        assert int(status["CapEff"], 16) == 0
        files = Path(f"/proc/{machine.pid}/fd").iterdir()
        assert sorted(int(each.name) for each in files) == list(range(8))
        limits = Path(f"/proc/{machine.pid}/limits").read_text(encoding="ascii")
        assert "Max open files            8                    8" in limits
        assert Path(f"/proc/{machine.pid}/environ").read_bytes() == b"PYTHONHASHSEED=0\0"


def test_a_child_has_nothing_of_the_host_but_the_standard_library(
    open_machine: Any, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALLE_TEST_SECRET", "s3cret")
    source = """
def run(ctx, page):
    sys, os = map(ctx.emit.__func__.__globals__["__builtins__"]["__import__"], ("sys", "os"))
    roots = sorted({name.partition(".")[0] for name in sys.modules})
    ctx.emit({"roots": roots, "path": sys.path, "environ": sorted(os.environ), "argv": sys.argv})
"""
    (group,) = call(open_machine(ungated(source)), {})
    found = json.loads(group.runs[0].emits[0][0])
    assert set(found["roots"]) - sys.stdlib_module_names == {"__main__", "task", "walle_guest"}
    assert not [path for path in found["path"] if "site-packages" in path or path in {"", "."}]
    assert "WALLE_TEST_SECRET" not in found["environ"]
    assert found["argv"] == ["-c"]


def test_two_children_are_two_users(open_machine: Any) -> None:
    one, two = (open_machine("def run(ctx, page): pass") for _ in range(2))
    if "own_user" not in one.measures:
        pytest.skip("this user may not become another")
    assert one._uid != two._uid


def test_a_missing_measure_is_told_once_and_refused_where_required(
    open_machine: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process_settings, "_warned", set())
    monkeypatch.setattr(process_machine, "take_uid", lambda *_: -1)
    source = "def run(ctx, page): pass"
    with caplog.at_level(logging.WARNING):
        assert "own_user" not in open_machine(source).measures
        open_machine(source)
    assert [record.message.count("own_user") for record in caplog.records] == [1]
    with pytest.raises(VmStartError, match=r"lacks required measures .*own_user"):
        open_machine(source, required=frozenset({"own_user", "memory_limit"}))
    with pytest.raises(VmStartError, match="unknown measures"):
        open_machine(source, required=frozenset({"prayer"}))
