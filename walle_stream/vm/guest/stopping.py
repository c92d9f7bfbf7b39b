"""Stops a run from inside its interpreter: at its limit of steps, or when told to.

Both ways raise from a callback of ``sys.monitoring`` (PEP 669) at every event
from then on, so that a script that catches everything still ends. Costs nothing
where no steps are counted and nobody says stop.
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
"""Recursion limit while a run is stopped: at the bottom of a recursion nothing could be called."""
STOP_RUN: Final = f"import sys\nsys.setrecursionlimit({DEEPER})\n_session.stop()".encode()
"""Text of the pending call that stops the run at hand: the one frame that must fit under what
runs; the rest makes its own room."""

STOP_FOR_MEMORY: Final = STOP_RUN.replace(b"stop()", b"stop(for_memory=True)")
"""The same, because its process has too much."""

STOP_TEXTS: Final = (STOP_RUN, STOP_FOR_MEMORY)
"""All texts that the host lets an interpreter execute."""

# ours, and the text of a pending call: an exception from one has nowhere to go
_OWN_FILES: Final = ("<walle_guest", "<string>")


class RunStopped(BaseException):
    """Raised in a script that runs too long, at every line until it has ended."""


class StepsExceeded(BaseException):
    """Raised in a script that makes too many steps, at every further one."""


class Stopper:
    """Ends the run at hand; one per VM.

    A *step* is a turn of a loop or a call of a function of the script: what a
    program needs endlessly many of to run for ever.
    """

    def __init__(self, pulse: memoryview, max_steps: int = 0, code: CodeType | None = None) -> None:
        """Prepare; ``max_steps`` 0 counts none.

        ``pulse`` is a u64, the number of the run at hand, 0 between runs.
        """
        self._pulse = pulse
        self._max_steps = max_steps
        self._steps = 0
        self._is_on = False
        self.stopping = 0
        """Number of the run that has to end, 0 when none has."""
        self.paused = 0
        """Number of the run that waits for the host, 0 when none does."""
        self.is_for_memory = False
        """Whether the last run that was told to stop was told so for its memory."""
        if max_steps and code is not None:
            events = sys.monitoring.events
            kinds = (events.JUMP, events.PY_START, events.PY_RESUME)
            self._count_in(code, _begin(_STEP_TOOL, kinds, self._on_step))

    def begin_run(self) -> None:
        """Count from zero; only where steps are counted."""
        self._steps = 0
        if not self._is_on:
            self.stopping = 0  # what ended with the run before it made too many

    def check(self) -> None:
        """End a run that has to end and did not: its script caught what ended it.

        Raises:
            RunStopped: It has to.
        """
        if self.stopping:
            raise RunStopped

    def stop(self, *, for_memory: bool) -> None:
        """Stop the run at hand; a pending call of this interpreter makes this call.

        It comes at any depth, so its caller makes room first (``DEEPER``).
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
        """Stop stopping: the run has ended.

        Returns:
            Whether the run was told to stop; not for one that made too many steps.
        """
        was_told = self._is_on
        if was_told:
            # events end first: one between these lines must still find a run to stop
            sys.monitoring.set_events(_STOP_TOOL, 0)
            sys.monitoring.free_tool_id(_STOP_TOOL)
            self._is_on = False
            sys.setrecursionlimit(_DEEPEST)
        self.stopping = 0
        return was_told

    def _on_event(self, code: CodeType, *_: object) -> None:
        if (self._pulse[0] or self.paused) != self.stopping:
            self.release()  # the run had ended when the host asked
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
    # the set of the events
    sys.monitoring.use_tool_id(tool, _TOOL_NAME)
    for event in events:
        sys.monitoring.register_callback(tool, event, callback)
    return sum(events)
