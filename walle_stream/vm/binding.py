"""What a VM says when it was bound to a task: the script's body ran, or what it raised."""

import re
from collections.abc import Sequence
from typing import Final

from walle_stream.vm.frames import decode_results
from walle_stream.vm.program import CompiledProgram, script_error
from walle_stream.vm.results import DeviceGroup

_BIND_GROUPS: Final[Sequence[DeviceGroup]] = (("", {}, ((0, 0, ()),)),)


def check_bound(program: CompiledProgram, outbox: memoryview) -> None:
    """Read the frame that the guest wrote when it was bound.

    Raises:
        ScriptError: The script's body raised.
        FrameError: There is no such frame.
    """
    (group,) = decode_results(_BIND_GROUPS, outbox)
    (run,) = group.runs
    if not run.ok:
        place = re.match(rf"{re.escape(program.file_name)}:(\d+): ", run.message)
        text = run.message[place.end() if place else 0 :]
        error = script_error(program, int(place[1]) if place else 0, f"raises when loaded: {text}")
        raise error
