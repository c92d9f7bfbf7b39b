"""Tensors in features: evaluated for all runs of a call at once, when the last is done.

A feature with tensors is cut into its text and its tensors when it is emitted;
what they need from the host is written down then, as a request of its own. The
requests of many runs cross together. A failure of one of them is the
failure of an emit: the session makes the call again with ``is_eager``, and each
emit evaluates at once, so that it fails in its own run. Scripts are
deterministic: the second pass does what the first one did, up to there. Both
ways give the same bytes, because the host answers each request as if it had come
alone.
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
"""Requests of more bytes are evaluated at the end of a run, not of the call; a run's own
at once. So twice as much waits at most, half of what a crossing may have."""

WAITING_MAX_NODES: Final = 100_000
"""The same for nodes of requests."""

RUN_MAX_REQUESTS: Final = 100
"""A run with more that wait asks for them at once: what it asks for is bounded by time."""

_COUNT: Final = struct.Struct("<I")
_SIZE: Final = struct.Struct("<I")

type Ask = Callable[[bytes], bytes]
"""Asks the host: request in, response out; a RuntimeError when it refuses."""


class Sender(Protocol):
    """A run's context, as far as features with tensors need it."""

    _output_bytes_: int
    _limits_: Any


class _Feature(NamedTuple):
    number: int
    """Of its body in the run's list of bodies and encodings."""
    pieces: list[bytes]
    tensors: list[Tensor]
    counted_bytes: int
    """What its run has counted for its body so far."""


class _Request(NamedTuple):
    data: bytes
    node_count: int
    wanted: list[Tensor]


class _Requests:
    """Those that wait, and how much they are."""

    def __init__(self) -> None:
        self.waiting: list[_Request] = []
        self._bytes = self._nodes = 0

    def add(self, requests: Iterable[_Request]) -> None:
        """Let more wait."""
        for request in requests:
            self.waiting.append(request)
            self._bytes += len(request.data)
            self._nodes += request.node_count

    @property
    def are_many(self) -> bool:
        """Whether they wait no longer."""
        return self._bytes > WAITING_MAX_BYTES or self._nodes > WAITING_MAX_NODES


class _Run(NamedTuple):
    sender: Sender
    number: int
    features: list[_Feature]
    place: tuple[int, int] | None
    """Where its bodies' words and parts begin; None for a run that failed."""


class Deferral:
    """Tensors of a VM's call that wait to be evaluated. One thread at a time."""

    def __init__(
        self,
        ask: Ask,
        ask_for_all: Callable[[bytes, int], bytes],
        keep_call: Callable[[], bool],
        pulse: memoryview,
    ) -> None:
        """Begin with none.

        Args:
            ask: For the run at hand.
            ask_for_all: For runs that are over; also takes how many there are.
            keep_call: Keeps what the call was given, so that it can be made again;
                says whether that is there.
            pulse: The number of the run at hand, 0 between runs.
        """
        self._ask = ask
        self._ask_for_all = ask_for_all
        self._keep_call = keep_call
        self._pulse = pulse
        self._number = 0  # of the last request
        self.is_likely = False
        """Whether the task has emitted tensors."""
        self.features: list[_Feature] = []
        """Of the run at hand, that wait for tensors; the same list for the VM's life, as it
        is looked at after every run."""
        self.begin(is_eager=True)

    def begin(self, *, is_eager: bool) -> None:
        """Begin a call; evaluate at once if it is eager."""
        self.is_eager = is_eager
        """Whether tensors are evaluated when they are emitted."""
        self.features.clear()
        self.place: tuple[int, int] | None = None
        """Where the control words and parts of the run at hand begin, if it succeeded."""
        self.has_failed = False
        """Whether the call has to be made again."""
        self._mine = _Requests()  # of the run at hand
        self._others = _Requests()
        self._runs: list[_Run] = []
        self._run_count = 0

    @property
    def is_used(self) -> bool:
        """Whether runs of this call wait, or it has to be made again."""
        return self._run_count > 0 or self.has_failed

    def evaluate(self, tensors: Iterable[Tensor]) -> None:
        """Let the host compute tensors, in one crossing; those with a value need none.

        Raises:
            RuntimeError: The host refused: shapes do not fit, or it is too much.
            TypeError: One is no tensor.
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
        """Say whether tensors that are emitted now may wait for the end of the call."""
        self.is_likely = True
        if not self.is_eager and not self._keep_call():
            self.is_eager = True
        return not self.is_eager

    def wait(
        self, number: int, pieces: list[bytes], tensors: list[Tensor], counted_bytes: int
    ) -> None:
        """Let a feature of the run at hand wait for its tensors.

        Args:
            number: Of its body in the run's list of bodies and encodings.
            pieces: Its text, cut where the tensors stand.
            tensors: In order.
            counted_bytes: What the run counts for the body for now.

        Raises:
            RuntimeError: There were too many, and the host refused them.
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
        """End a run that has ``features``; say whether the call may go on, or is made again."""
        self._runs.append(_Run(sender, self._pulse[0], [*self.features], self.place))
        self.features.clear()
        self._run_count += 1
        self._others.add(self._mine.waiting)
        self._mine, self.place = _Requests(), None
        if self._others.are_many:
            return self.finish(words, parts)
        return not self.has_failed

    def finish(self, words: list[int], parts: list[bytes]) -> bool:
        """Evaluate what waits, put bodies where they belong, and say whether all went well."""
        runs, requests = self._runs, self._others.waiting
        self._runs, self._others = [], _Requests()
        if self.has_failed:
            return False
        try:
            if requests:
                _take_all(self._ask_for_all(_encode_all(requests), self._run_count), requests)
            for run in runs:
                self._pulse[0] = run.number  # whose output it is, for who watches
                _fill_run(run, words, parts)
        except Exception:  # noqa: BLE001 - whatever it is, the second pass says whose it is
            self.has_failed = True
        self._pulse[0] = 0
        return not self.has_failed

    def _settle(self) -> None:
        # what the run at hand has emitted is needed now
        requests, self._mine = self._mine.waiting, _Requests()
        try:
            if requests:
                _take_all(self._ask(_encode_all(requests)), requests)
        except BaseException:
            self.has_failed = True
            raise


def fill(pieces: Sequence[bytes], tensors: Sequence[Tensor], room_bytes: int) -> bytes | None:
    """Put tensors' elements, which are known, into a feature's text; None beyond its room.

    Raises:
        ValueError: NaN or infinity.
    """
    parts = [pieces[0]]
    room_bytes -= sum(map(len, pieces))
    for tensor, piece in zip(tensors, pieces[1:], strict=True):
        # before a list is made: an element takes a digit, and a comma but for one
        if 2 * tensor._count_() - 1 > room_bytes:
            return None
        data = encode_json(tensor.tolist())
        room_bytes -= len(data)
        parts += (data, piece)
    return b"".join(parts) if room_bytes >= 0 else None


def _fill_run(run: _Run, words: list[int], parts: list[bytes]) -> None:
    # A run that failed, too: an emit of it may have failed before.
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
