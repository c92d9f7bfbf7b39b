"""Stop of a run inside its interpreter: at its limit of steps, or on the host's order.

Both ways raise from a callback of ``sys.monitoring`` (PEP 669) at every further
event, so that a script that catches all exceptions still ends. Without a limit of
steps and without an order to stop, this costs nothing.
"""

import sys
from collections.abc import Callable
from types import CodeType
from typing import Final

_STOP_TOOL: Final = 4
_STEP_TOOL: Final = 3
_TOOL_NAME: Final = "walle"
_DEEPEST: Final = sys.getrecursionlimit()
DEEPER: Final = _DEEPEST + 100
"""Recursion limit of a run being stopped, so that calls deep in a recursion still work."""
STOP_RUN: Final = f"import sys\nsys.setrecursionlimit({DEEPER})\n_session.stop()".encode()
"""Text of the pending call that stops the current run. Only its own frame must fit into the
recursion limit, which it then raises."""

STOP_FOR_MEMORY: Final = STOP_RUN.replace(b"stop()", b"stop(for_memory=True)")
"""Text of the pending call that stops the current run because of the process's memory."""

STOP_TEXTS: Final = (STOP_RUN, STOP_FOR_MEMORY)
"""All texts that the host lets an interpreter execute."""

# our own code and the text of a pending call, where an exception would have no handler
_OWN_FILES: Final = ("<walle_guest", "<string>")


class RunStopped(BaseException):
    """Raised in a script that runs too long, at every line until the script ends."""


class StepsExceeded(BaseException):
    """Raised in a script that makes too many steps, at every further step."""


class Stopper:
    """Stopper of the current run; one per VM.

    A *step* is a loop turn or a call of a function of the script. A program that
    runs forever needs endlessly many of them.
    """

    def __init__(self, pulse: memoryview, max_steps: int = 0, code: CodeType | None = None) -> None:
        """Prepare for a VM; ``max_steps`` 0 counts no steps.

        ``pulse`` is a u64 with the number of the current run, 0 between runs.
        """
        self._pulse = pulse
        self._max_steps = max_steps
        self._steps = 0
        self._is_on = False
        self.stopping = 0
        """Number of the run that must end, 0 for none."""
        self.paused = 0
        """Number of the run that waits for the host, 0 for none."""
        self.is_for_memory = False
        """Whether the last stop of a run was for memory."""
        if max_steps and code is not None:
            events = sys.monitoring.events
            kinds = (events.JUMP, events.PY_START, events.PY_RESUME)
            self._count_in(code, _begin(_STEP_TOOL, kinds, self._on_step))

    def begin_run(self) -> None:
        """Reset the count of steps; called only if steps are counted."""
        self._steps = 0
        if not self._is_on:
            self.stopping = 0  # left over from a run before that exceeded its steps

    def check(self) -> None:
        """End a stopped run whose script caught the exception.

        Raises:
            RunStopped: The run must end.
        """
        if self.stopping:
            raise RunStopped

    def stop(self, *, for_memory: bool) -> None:
        """Stop the current run; called by a pending call of this interpreter.

        The pending call may come at any depth, so it first raises the limit (``DEEPER``).
        """
        number = self._pulse[0] or self.paused
        if not number:
            sys.setrecursionlimit(_DEEPEST)
        elif not self._is_on:
            self.is_for_memory = for_memory
            self.stopping = number
            events = sys.monitoring.events
            kinds = (events.LINE, events.JUMP, events.PY_START)
            self._is_on = True
            sys.monitoring.set_events(_STOP_TOOL, _begin(_STOP_TOOL, kinds, self._on_event))

    def release(self) -> bool:
        """End the stop, because the run has ended.

        Returns:
            Whether the run was told to stop; False if it exceeded its steps.
        """
        was_told = self._is_on
        if was_told:
            # events end first, because an event between these lines still needs a run to stop
            sys.monitoring.set_events(_STOP_TOOL, 0)
            sys.monitoring.free_tool_id(_STOP_TOOL)
            self._is_on = False
            sys.setrecursionlimit(_DEEPEST)
        self.stopping = 0
        return was_told

    def _on_event(self, code: CodeType, *_: object) -> None:
        if (self._pulse[0] or self.paused) != self.stopping:
            self.release()  # the run ended before the host's order
        elif not code.co_filename.startswith(_OWN_FILES):
            raise RunStopped

    def _on_step(self, *_: object) -> None:
        self._steps += 1
        if self._steps > self._max_steps and (number := self._pulse[0]):
            self.stopping = number
            raise StepsExceeded

    def _count_in(self, code: CodeType, events: int) -> None:
        sys.monitoring.set_local_events(_STEP_TOOL, code, events)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._count_in(constant, events)


def _begin(tool: int, events: tuple[int, ...], callback: Callable[..., object]) -> int:
    # returns the events as a set
    sys.monitoring.use_tool_id(tool, _TOOL_NAME)
    for event in events:
        sys.monitoring.register_callback(tool, event, callback)
    return sum(events)
