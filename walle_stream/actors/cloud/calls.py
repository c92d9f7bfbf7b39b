"""The cloud side's answers to calls of devices.

A call is a row of the cloud's store from the write batch that merged it until
its reply is in the tunnel: a death between loses nothing. A death just after the
reply was sent lets the service be asked again; the device takes one reply. So does
a call that its device makes or sends again, because a power cut took it or its reply.
"""

import json
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from walle_stream.errors import EnvelopeError
from walle_stream.faults import crash_point
from walle_stream.ports import Downlink, DownlinkSender
from walle_stream.wire.calls import REPLY_KIND, CloudReply, OpenCall, decode_reply, encode_reply
from walle_stream.wire.envelope import DownlinkEnvelope, decode_downlink, encode_downlink

if TYPE_CHECKING:
    from walle_stream.types import UplinkFrame

_log = logging.getLogger(__name__)

REPLY_MAX_BYTES: Final = 1024 * 1024
"""Largest answer, as JSON."""

WORKERS: Final = 4

_IN_HAND: Final = 64
_ERROR_MAX_CHARACTERS: Final = 500


class ServiceCall(msgspec.Struct, frozen=True):
    """What a service is asked."""

    device_id: str
    task: str
    task_version: str
    question: dict[str, Any]
    key: str
    """The same when a question is put again after a crash: for services that keep something."""


type Service = Callable[[ServiceCall], Any]
"""Answers a call with a JSON value; run by one of several threads, may block."""


class CallStore(Protocol):
    """Where calls wait for their answers. One thread, the cloud actor's."""

    @property
    def last_call(self) -> int:
        """Number of the last call that arrived, answered or not; 0 for none."""

    def open_calls(self, after: int, limit: int) -> Sequence[tuple[int, OpenCall]]:
        """Return waiting calls behind a number in the order of arrival, each with its number."""

    def close_call(self, number: int) -> None:
        """Forget a call, because its reply is in the tunnel; blocks."""


class CloudCalls:
    """Puts calls to services and sends replies, in the order of arrival."""

    def __init__(
        self,
        store: CallStore,
        sender: DownlinkSender,
        downlink: Downlink,
        services: Mapping[str, Service],
    ) -> None:
        """Begin with the calls that wait; the downlink only shows which replies go down."""
        self._store = store
        self._sender = sender
        self._downlink = downlink
        self._services = services
        self._in_hand: deque[tuple[int, OpenCall, Future[bytes]]] = deque()
        self._sent: dict[int, set[int]] = {}  # numbers of calls without acknowledgement
        self._last = 0
        self._work: SimpleQueue[tuple[OpenCall, Future[bytes]]] = SimpleQueue()
        self._workers: list[Thread] = []

    def step(self) -> None:
        """Take up what waits and send what is answered; waits for no service."""
        in_hand = self._in_hand
        self._settle()
        last = self._store.last_call
        room = _IN_HAND - len(in_hand) - sum(map(len, self._sent.values()))
        if last > self._last and room > 0:
            calls = self._store.open_calls(self._last, room)
            self._hire(len(calls))
            for number, call in calls:
                future: Future[bytes] = Future()
                self._work.put((call, future))
                in_hand.append((number, call, future))
            self._last = calls[-1][0] if len(calls) == room else last
        replies: list[UplinkFrame] = []
        while in_hand and in_hand[0][2].done():
            number, call, future = in_hand.popleft()
            message = DownlinkEnvelope(call.call.device_id, REPLY_KIND, future.result())
            replies.append((call.partition, number, encode_downlink(message)))
            self._sent.setdefault(call.partition, set()).add(number)
        if replies:
            crash_point("reply.before")
            self._sender.send(replies)
            crash_point("reply.after")
            self._settle()

    def _settle(self) -> None:
        # a call is open until its reply is safe
        for partition, numbers in self._sent.items():
            for number in self._sender.acks(partition) if numbers else ():
                numbers.discard(number)
                self._store.close_call(number)

    def in_hand(self, incarnation: str, partition: int, position: int) -> set[str]:
        """Return the digests of a partition's calls that wait here or whose reply goes down.

        ``position`` is of the last message that the partition has taken.
        """
        digests, after, sender = set[str](), 0, (incarnation, partition)
        while calls := self._store.open_calls(after, _IN_HAND):
            after = calls[-1][0]
            digests |= {
                call.call.digest
                for _, call in calls
                if (call.incarnation, call.partition) == sender
            }
        while messages := self._downlink.receive(partition, position, REPLY_MAX_BYTES):
            position = messages[-1][0]
            digests |= _replies_in([data for _, data in messages], incarnation)
        return digests

    def _hire(self, count: int) -> None:
        # daemons: a service that hangs must not keep the process, its call waits in the store
        while len(self._workers) < min(count, WORKERS):
            name = f"walle-service-{len(self._workers)}"
            worker = Thread(target=self._serve, name=name, daemon=True)
            self._workers.append(worker)
            worker.start()

    def _serve(self) -> None:
        while True:
            call, future = self._work.get()
            future.set_result(self._answer(call))

    def _answer(self, call: OpenCall) -> bytes:
        question = call.call
        reply = CloudReply(question.number, call.incarnation, question.digest)
        try:
            # as JSON has it: NaN would become null without a word
            text = json.dumps(self._ask(call), ensure_ascii=False, allow_nan=False)
            value = text.encode()
            if len(value) > REPLY_MAX_BYTES:
                raise ValueError(f"{len(value)} bytes, at most {REPLY_MAX_BYTES} are allowed")  # noqa: TRY301 - told to the script as any other
            reply.value = msgspec.Raw(value)
        except BaseException as error:  # noqa: BLE001 - whatever a service raises is its failure
            reply.error = _described(error)
            ids = {"device_id": question.device_id, "task": question.task}
            _log.warning("service %r failed: %s", question.service, reply.error, extra=ids)
        return encode_reply(reply)

    def _ask(self, call: OpenCall) -> Any:
        asking = call.call
        service = self._services.get(asking.service)
        if service is None:
            known = ", ".join(sorted(self._services)) or "none"
            raise LookupError(
                f"there is no service {asking.service!r} (spec.services): the pipeline has {known}"
            )
        question = msgspec.json.decode(asking.question, type=dict[str, Any])
        key = f"{call.incarnation}/{asking.device_id}/{asking.number}-{asking.digest}"
        return service(
            ServiceCall(asking.device_id, asking.task, asking.task_version, question, key)
        )


def _replies_in(messages: Sequence[bytes], incarnation: str) -> set[str]:
    digests = set[str]()
    for data in messages:
        with suppress(EnvelopeError):  # its partition drops and counts it
            envelope = decode_downlink(data)
            if envelope.kind == REPLY_KIND:
                reply = decode_reply(envelope.payload)
                if reply.incarnation == incarnation:
                    digests.add(reply.digest)
    return digests


def _described(error: BaseException) -> str:
    name = type(error).__name__
    try:
        return f"{name}: {error}"[:_ERROR_MAX_CHARACTERS]
    except Exception:  # noqa: BLE001 - its __str__ is the service's too
        return f"{name}: its text could not be made"
