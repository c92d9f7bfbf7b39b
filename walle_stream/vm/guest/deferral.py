"""Tensors in features, evaluated together for all runs of a call after the last run.

At its emit, a feature with tensors is cut into its text and its tensors, and a
request to the host is recorded for them. The requests of many runs cross together.
If one of them fails, an emit must fail. So the session repeats the call with
``is_eager``: each emit evaluates at once, and fails in its own run. Scripts are
deterministic, so the second pass repeats the first one up to the failure. Both ways
give the same bytes, because the host answers each request as if it were alone.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from walle_stream.vm.guest.codec import encode_json
from walle_stream.vm.guest.requests import (
    encode_request,
    is_new,
    needs_earlier,
    postpone,
    take_response,
)
from walle_stream.vm.guest.tensors import Tensor, checked

WAITING_MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes of waiting requests above which they are evaluated at the end of a run, not of the
call. A single run's requests above it are evaluated at once. So at most twice this size waits,
which is half of the limit for one exchange with the host."""

WAITING_MAX_NODES: Final = 100_000
"""The same bound for nodes of requests."""

RUN_MAX_REQUESTS: Final = 100
"""Waiting requests of a run above which it sends them at once, because its own requests are
bounded by time."""

_COUNT: Final = struct.Struct("<I")
_SIZE: Final = struct.Struct("<I")

type Ask = Callable[[bytes], bytes]
"""Sends a request to the host and returns the response; a refusal raises RuntimeError."""


class Sender(Protocol):
    """The part of a run's context that features with tensors need."""

    _output_bytes_: int
    _limits_: Any


class _Feature(NamedTuple):
    number: int
    """Index of its body in the run's list of bodies and encodings."""
    pieces: list[bytes]
    tensors: list[Tensor]
    counted_bytes: int
    """Bytes that its run has counted for its body so far."""


class _Request(NamedTuple):
    data: bytes
    node_count: int
    wanted: list[Tensor]


class _Requests:
    """Waiting requests with their total size."""

    def __init__(self) -> None:
        self.waiting: list[_Request] = []
        self._bytes = self._nodes = 0

    def add(self, requests: Iterable[_Request]) -> None:
        """Add waiting requests."""
        for request in requests:
            self.waiting.append(request)
            self._bytes += len(request.data)
            self._nodes += request.node_count

    @property
    def are_many(self) -> bool:
        """Whether the requests exceed a bound, and must be evaluated."""
        return self._bytes > WAITING_MAX_BYTES or self._nodes > WAITING_MAX_NODES


class _Run(NamedTuple):
    sender: Sender
    number: int
    features: list[_Feature]
    place: tuple[int, int] | None
    """Indices of the first word and part of its bodies; None for a failed run."""


class Deferral:
    """Tensors of a VM's call that wait for evaluation; for one thread at a time."""

    def __init__(
        self,
        ask: Ask,
        ask_for_all: Callable[[bytes, int], bytes],
        keep_call: Callable[[], bool],
        pulse: memoryview,
    ) -> None:
        """Begin without waiting tensors.

        Args:
            ask: Sends a request of the current run.
            ask_for_all: Sends requests of completed runs; also takes their number.
            keep_call: Keeps the input of the call for a repetition; returns whether
                the input is available.
            pulse: Number of the current run, 0 between runs.
        """
        self._ask = ask
        self._ask_for_all = ask_for_all
        self._keep_call = keep_call
        self._pulse = pulse
        self._number = 0  # of the last request
        self.is_likely = False
        """Whether the task has emitted tensors."""
        self.features: list[_Feature] = []
        """Features of the current run that wait for tensors. The list is the same object for the
        VM's life, because it is checked after every run."""
        self.begin(is_eager=True)

    def begin(self, *, is_eager: bool) -> None:
        """Begin a call; an eager call evaluates tensors at once."""
        self.is_eager = is_eager
        """Whether tensors are evaluated at their emit."""
        self.features.clear()
        self.place: tuple[int, int] | None = None
        """Indices of the first control word and part of the current run, if it succeeded."""
        self.has_failed = False
        """Whether the call must be repeated."""
        self._mine = _Requests()  # of the current run
        self._others = _Requests()
        self._runs: list[_Run] = []
        self._run_count = 0

    @property
    def is_used(self) -> bool:
        """Whether runs of this call wait, or it must be repeated."""
        return self._run_count > 0 or self.has_failed

    def evaluate(self, tensors: Iterable[Tensor]) -> None:
        """Let the host compute all tensors without a value, in one request.

        Raises:
            RuntimeError: The host refused, because shapes do not fit or the
                request is too large.
            TypeError: An argument is not a tensor.
        """
        different = {id(tensor): tensor for tensor in map(checked, tensors)}.values()
        wanted = [tensor for tensor in different if tensor._value_ is None]
        if wanted and self.features and needs_earlier(wanted):
            self._settle()
            wanted = [tensor for tensor in different if tensor._value_ is None]
        if wanted:
            request, _ = encode_request(wanted)
            take_response(self._ask(b"T" + request), 0, wanted)

    def may_wait(self) -> bool:
        """Return whether tensors of the next emit may wait for the end of the call."""
        self.is_likely = True
        if not self.is_eager and not self._keep_call():
            self.is_eager = True
        return not self.is_eager

    def wait(
        self, number: int, pieces: list[bytes], tensors: list[Tensor], counted_bytes: int
    ) -> None:
        """Let a feature of the current run wait for its tensors.

        Args:
            number: Index of its body in the run's list of bodies and encodings.
            pieces: The feature's text, cut at the places of the tensors.
            tensors: The tensors in order.
            counted_bytes: Bytes that the run counts for the body for now.

        Raises:
            RuntimeError: There were too many requests, and the host refused them.
        """
        new = {id(tensor): tensor for tensor in tensors if is_new(tensor)}
        wanted, request = list(new.values()), None
        if wanted:
            request = _Request(*encode_request(wanted, self._number + 1), wanted)
        self.features.append(_Feature(number, pieces, tensors, counted_bytes))
        if request is not None:
            self._number += 1
            self._mine.add([request])
            postpone(wanted, self._number)
            if self._mine.are_many or len(self._mine.waiting) > RUN_MAX_REQUESTS:
                self._settle()

    def end_run(self, sender: Sender, words: list[int], parts: list[bytes]) -> bool:
        """End a run that has ``features``; return False if the call must be repeated."""
        self._runs.append(_Run(sender, self._pulse[0], [*self.features], self.place))
        self.features.clear()
        self._run_count += 1
        self._others.add(self._mine.waiting)
        self._mine, self.place = _Requests(), None
        if self._others.are_many:
            return self.finish(words, parts)
        return not self.has_failed

    def finish(self, words: list[int], parts: list[bytes]) -> bool:
        """Evaluate all waiting tensors and insert the bodies; return whether all succeeded."""
        runs, requests = self._runs, self._others.waiting
        self._runs, self._others = [], _Requests()
        if self.has_failed:
            return False
        try:
            if requests:
                _take_all(self._ask_for_all(_encode_all(requests), self._run_count), requests)
            for run in runs:
                self._pulse[0] = run.number  # shows the watchdog the run of this output
                _fill_run(run, words, parts)
        except Exception:  # noqa: BLE001 - the second pass finds the failed run
            self.has_failed = True
        self._pulse[0] = 0
        return not self.has_failed

    def _settle(self) -> None:
        # the tensors of the current run's emits are needed now
        requests, self._mine = self._mine.waiting, _Requests()
        try:
            if requests:
                _take_all(self._ask(_encode_all(requests)), requests)
        except BaseException:
            self.has_failed = True
            raise


def fill(pieces: Sequence[bytes], tensors: Sequence[Tensor], room_bytes: int) -> bytes | None:
    """Insert evaluated tensors into a feature's text; None if it exceeds ``room_bytes``.

    Raises:
        ValueError: A tensor has NaN or infinity.
    """
    parts = [pieces[0]]
    room_bytes -= sum(map(len, pieces))
    for tensor, piece in zip(tensors, pieces[1:], strict=True):
        # checked before a list is made: n elements take at least n digits and n - 1 commas
        if 2 * tensor._count_() - 1 > room_bytes:
            return None
        data = encode_json(tensor.tolist())
        room_bytes -= len(data)
        parts += (data, piece)
    return b"".join(parts) if room_bytes >= 0 else None


def _fill_run(run: _Run, words: list[int], parts: list[bytes]) -> None:
    # failed runs are checked, too, because one of their emits may have to fail earlier
    sender = run.sender
    max_bytes = sender._limits_[0]
    for number, pieces, tensors, counted_bytes in run.features:
        others_bytes = sender._output_bytes_ - counted_bytes
        body = fill(pieces, tensors, max_bytes - others_bytes)
        if body is None:
            raise ValueError("limits.outputBytes")
        sender._output_bytes_ = others_bytes + len(body)
        if run.place is not None:
            first_word, first_part = run.place
            words[first_word + number] = len(body)
            parts[first_part + number] = body


def _encode_all(requests: Sequence[_Request]) -> bytes:
    pieces = [b"M", _COUNT.pack(len(requests))]
    for request in requests:
        pieces += (_SIZE.pack(len(request.data)), request.data)
    return b"".join(pieces)


def _take_all(response: bytes, requests: Iterable[_Request]) -> None:
    at = 0
    for request in requests:
        at = take_response(response, at, request.wanted)
