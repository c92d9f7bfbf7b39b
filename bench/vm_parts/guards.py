"""What the guards cost: restricted builtins, rewritten attributes, the watchdog.

Both sides run in one session of this interpreter on one core; only what is
guarded differs. The watchdog is measured on a VM, because it looks at VMs.
"""

import builtins
import marshal
import statistics
from random import Random
from typing import Any, Final

import msgspec

from vm_parts.measuring import Settings, say
from vm_parts.overhead import interleaved_us
from vm_parts.plain import tune_gc
from vm_parts.scripts import LIGHT, compiled, make_batch
from walle_stream.vm.frames import encode_groups
from walle_stream.vm.guest.session import Session
from walle_stream.vm.machine import Machine
from walle_stream.vm.program import CompiledProgram
from walle_stream.vm.virtual_machine import VirtualMachine
from walle_stream.vm.watchdog import Watchdog

_BATCH_SIZE: Final = 100
_EVENTS: Final = 20
_OUTBOX_BYTES: Final = 4 * 1024 * 1024
_WATCHED_MS: Final = 5_000.0
_FINER: Final = 5  # a few per cent: both sides must see the same machine
_CODE: Final = 2  # place of the code in a packed program


class _Session(Session):
    """A session without the audit hook: one would refuse this process its files for ever."""

    def _begin_audit(self) -> None:
        """Look at nothing."""


class _BareSession(_Session):
    """A session whose scripts get the real builtins, imports included."""

    def bind(self, packed: bytes) -> None:
        """Load a task, then take the guards away, before the body runs for good."""
        super().bind(packed)
        self._builtins = vars(builtins)


def measure_guards(settings: Settings) -> dict[str, Any]:
    """Measure the light task with and without."""
    tune_gc()
    batch = make_batch(Random(settings.seed), _BATCH_SIZE, _EVENTS)
    packed = memoryview(encode_groups(batch))
    guarded, bare = compiled(LIGHT), _without_gate(LIGHT)
    sessions = {
        "guarded": _open(_Session, guarded),
        "bare": _open(_BareSession, bare),
    }
    outboxes = []
    for session, outbox in sessions.values():
        session.call(packed)
        outboxes.append(bytes(outbox))
    if outboxes[0] != outboxes[1]:
        raise RuntimeError("the script without guards makes other features")
    times = interleaved_us(
        {
            name: lambda session=session: session.call(packed)  # type: ignore[misc]
            for name, (session, _) in sessions.items()
        },
        settings.repeats * _FINER,
        settings.target_s / 2 / _FINER,
    )
    result: dict[str, Any] = _compared(times["guarded"], times["bare"])
    result["watchdog"] = _watchdog(settings)
    say(f"guards: {result['percent']} %, watchdog: {result['watchdog']['percent']} %")
    return result


def _without_gate(source: str) -> CompiledProgram:
    # the compiled program with the script as it is written in the code's place
    guarded = compiled(source)
    parts = list(marshal.loads(guarded.packed))  # noqa: S302 - made above
    parts[_CODE] = compile(source, guarded.file, "exec", dont_inherit=True, optimize=0)
    return msgspec.structs.replace(guarded, packed=marshal.dumps(tuple(parts)))


def _open(kind: type[Session], script: CompiledProgram) -> tuple[Session, memoryview]:
    outbox = memoryview(bytearray(_OUTBOX_BYTES))
    session = kind(memoryview(bytearray(16)), outbox, memoryview(bytearray(8)))
    session.bind(script.packed)
    return session, outbox


def _watchdog(settings: Settings) -> dict[str, Any]:
    batch = make_batch(Random(settings.seed), _BATCH_SIZE, _EVENTS)
    machine = VirtualMachine(compiled(LIGHT))
    with_it: list[float] = []
    without: list[float] = []

    def nothing(_: Machine) -> None:
        """Never told: no run takes that long."""

    try:
        for _ in range(settings.repeats * _FINER):
            for is_watched in (False, True):
                watchdog = Watchdog(nothing, nothing)
                if is_watched:
                    watchdog.watch(machine, _WATCHED_MS)
                ways = {"call": lambda: machine.call(batch, encode_groups(batch))}
                found = interleaved_us(ways, 1, settings.target_s / 2 / _FINER)["call"]
                (with_it if is_watched else without).extend(found)
                watchdog.close()
    finally:
        machine.destroy()
    return _compared(with_it, without)


def _compared(with_us: list[float], without_us: list[float]) -> dict[str, Any]:
    ratios = [one / other for one, other in zip(with_us, without_us, strict=True)]
    return {
        "with_us_per_run": round(statistics.median(with_us) / _BATCH_SIZE, 3),
        "without_us_per_run": round(statistics.median(without_us) / _BATCH_SIZE, 3),
        "percent": round((statistics.median(ratios) - 1.0) * 100.0, 2),
    }
