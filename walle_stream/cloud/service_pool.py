"""One service of a pipeline, called in threads of its own.

A thread cannot be ended. A thread that does not return in time is abandoned: its answer is dropped,
and another thread takes its place, up to ``HANGING`` times the service's ``concurrency``. While all
of them hang, questions are answered with an error at once.
"""

import json
import logging
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path
from threading import Condition, Thread
from typing import Any, Final, NamedTuple

import msgspec

from walle_stream.clock import monotonic_ms

_log = logging.getLogger(__name__)

REPLY_MAX_BYTES: Final = 1024 * 1024
"""Maximum bytes of an answer, as JSON."""

HANGING: Final = 4

_BACKOFF_MAX_MS: Final = 10_000.0
_ERROR_MAX_CHARACTERS: Final = 500
_AGAIN: Final = (ConnectionError, TimeoutError)


class ServiceCall(msgspec.Struct, frozen=True):
    """Question to a service."""

    device_id: str
    task: str
    task_version: str
    question: dict[str, Any]
    key: str
    """Key that is the same when a question is repeated after a crash, for services with state."""


class Served(NamedTuple):
    """A service, with the options of its calls."""

    ask: Callable[[ServiceCall], Any]
    """Answers with a JSON value, in any thread; may block.

    It is called again after a ``ConnectionError``, a ``TimeoutError``, or no answer in time.
    """
    timeout_ms: float = 10_000.0
    attempts: int = 1
    backoff_ms: float = 100.0
    concurrency: int = 4


class Answer(NamedTuple):
    """Result of a question."""

    value: bytes = b"null"
    """JSON."""
    error: str = ""


class _Question:
    __slots__ = ("attempts", "call", "due_ms", "on_answer")

    def __init__(self, call: ServiceCall, on_answer: Callable[[Answer], None]) -> None:
        self.call, self.on_answer = call, on_answer
        self.attempts, self.due_ms = 0, 0.0  # time at which an answer, or another attempt, is due


class ServicePool:
    """Threads that call one service. Thread-safe."""

    def __init__(self, name: str, served: Served) -> None:
        """Begin without a thread."""
        self._name, self._served = name, served
        self._condition = Condition()
        self._waiting: deque[_Question] = deque()
        self._running: dict[object, _Question] = {}
        self._resting: list[_Question] = []
        self._threads = self._hanging = 0
        self._is_closed = False
        self.answered = self.failed = self.timed_out = 0
        """Numbers of questions since this process started; each counts once."""

    def ask(self, call: ServiceCall, on_answer: Callable[[Answer], None]) -> None:
        """Submit a question; never blocks.

        ``on_answer`` is called once, in any thread, and must not block.
        """
        with self._condition:
            self._waiting.append(_Question(call, on_answer))
            self._hire()

    def step(self) -> None:
        """Abandon hanging threads, and retry questions that are due; never blocks."""
        now_ms, most = monotonic_ms(), HANGING * self._served.concurrency
        within = f"no answer within {self._served.timeout_ms / 1000:g} s"
        with self._condition:
            for turn in [turn for turn, each in self._running.items() if each.due_ms <= now_ms]:
                self._hanging += 1
                self._end(self._running.pop(turn), TimeoutError(within))
            due = [each for each in self._resting if each.due_ms <= now_ms]
            self._resting = [each for each in self._resting if each not in due]
            self._waiting += due
            while self._waiting and self._hanging >= most:
                question = self._waiting.popleft()
                why = within if question.attempts else f"all {most} threads of the service hang"
                question.attempts = self._served.attempts
                self._end(question, TimeoutError(why))
            self._hire()

    def close(self) -> None:
        """End the waiting threads; no question may follow."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()

    def _hire(self) -> None:
        served, wanted = self._served, len(self._running) + len(self._waiting)
        most = min(wanted, served.concurrency)
        while self._threads - self._hanging < most and self._threads < HANGING * served.concurrency:
            self._threads += 1
            # daemons: a hanging service must not keep the process, as its call waits in the store
            name = f"walle-service-{self._name}-{self._threads}"
            Thread(target=self._serve, name=name, daemon=True).start()
        self._condition.notify_all()

    def _serve(self) -> None:
        while (taken := self._next()) is not None:
            turn, question = taken
            answer = self._answer(question.call)
            with self._condition:
                if self._running.pop(turn, None) is not None:
                    self._end(question, answer)
                    continue
                self._hanging -= 1  # it returned too late
                if self._threads - self._hanging > self._served.concurrency:
                    break
        with self._condition:
            self._threads -= 1

    def _next(self) -> tuple[object, _Question] | None:
        with self._condition:
            self._condition.wait_for(lambda: self._waiting or self._is_closed)
            if self._is_closed:
                return None
            turn, question = object(), self._waiting.popleft()
            question.attempts += 1
            question.due_ms = monotonic_ms() + self._served.timeout_ms
            self._running[turn] = question
            return turn, question

    def _answer(self, call: ServiceCall) -> bytes | BaseException:
        try:
            # strict JSON: otherwise NaN would silently become null
            text = json.dumps(self._served.ask(call), ensure_ascii=False, allow_nan=False)
            value = text.encode()
            if len(value) > REPLY_MAX_BYTES:
                return ValueError(f"{len(value)} bytes, at most {REPLY_MAX_BYTES} are allowed")
        except BaseException as error:  # noqa: BLE001 - any error is the service's
            return error
        return value

    def _end(self, question: _Question, answer: bytes | BaseException) -> None:
        if isinstance(answer, bytes):
            self.answered += 1
            question.on_answer(Answer(answer))
            return
        call, served = question.call, self._served
        if isinstance(answer, _AGAIN) and question.attempts < served.attempts:
            pause_ms = served.backoff_ms * 2 ** min(question.attempts - 1, 20)
            question.due_ms = monotonic_ms() + min(pause_ms, _BACKOFF_MAX_MS)
            self._resting.append(question)
            return
        if isinstance(answer, TimeoutError):
            self.timed_out += 1
        else:
            self.failed += 1
        error = _described(answer)
        ids = {"device_id": call.device_id, "task": call.task}
        text = "service %r failed for device %r, task %r: %s%s"
        place = _place(answer)
        _log.warning(text, self._name, call.device_id, call.task, place, error, extra=ids)
        question.on_answer(Answer(error=error))


def _place(error: BaseException) -> str:
    # where a function raised the error
    frames = traceback.extract_tb(error.__traceback__)[1:]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}: " if frames else ""


def _described(error: BaseException) -> str:
    name = type(error).__name__
    try:
        text = f"{name}: {error}"[:_ERROR_MAX_CHARACTERS]
        return text.encode(errors="backslashreplace").decode()  # file names may not be text
    except Exception:  # noqa: BLE001 - its __str__ is the service's too
        return f"{name}: its text could not be made"
