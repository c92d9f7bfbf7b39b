"""Answers of the cloud side to calls of devices, for any tunnel.

A call is a row of its store from the write batch that merged it until its reply is in the tunnel,
so a crash in between loses nothing. After a crash just after the reply was sent, the service is
asked again, but the device takes only one reply. The same holds for a call that its device repeats,
because a power cut took the call or its reply, and for a call whose store moved to another worker.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import msgspec

from walle_stream.cloud.partition_table import PartitionTable
from walle_stream.cloud.service_pool import Answer, Served, ServiceCall, ServicePool
from walle_stream.errors import StoreError
from walle_stream.faults import crash_point
from walle_stream.ports import DownlinkSender
from walle_stream.wire.calls import REPLY_KIND, CloudReply, OpenCall, encode_reply
from walle_stream.wire.envelope import DownlinkEnvelope, encode_downlink
from walle_stream.wire.metrics_text import Metrics

if TYPE_CHECKING:
    from walle_stream.types import UplinkFrame

_log = logging.getLogger(__name__)

IN_HAND: Final = 64
"""Maximum calls of a service in hand, which limits the replies in memory."""

_NOBODY: Final = ""
_CALLS: Final = "Calls of services by outcome, since this process started."

type ServiceCounts = Mapping[str, Mapping[str, int]]
"""Numbers of calls by service and state."""


class _Lane:
    # position in a store up to which calls were taken
    def __init__(self, store: PartitionTable) -> None:
        self.store = store
        self.last = 0
        self.held: dict[str, int] = {}  # by service without room: later calls of it wait
        self.is_gone = False


class _InHand:
    __slots__ = ("call", "lane", "number", "reply", "service")

    def __init__(self, lane: _Lane, number: int, call: OpenCall, service: str) -> None:
        self.lane, self.number, self.call, self.service = lane, number, call, service
        self.reply = b""

    @property
    def line(self) -> tuple[str, str, str]:
        # replies of one line go down in the order of the calls
        return self.call.call.service, self.call.incarnation, self.call.call.device_id


class CloudCalls:
    """Dispatcher of calls to services, with replies in order for each device and service.

    One thread steps; any thread may read the counts.
    """

    def __init__(
        self,
        stores: Callable[[], Sequence[PartitionTable]],
        sender: DownlinkSender,
        services: Mapping[str, Served],
        on_answer: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin with the calls that wait in the stores.

        ``on_answer`` is called, in any thread, when there is work for a step.
        """
        self._stores = stores
        self._sender = sender
        self._on_answer = on_answer
        self._pools = {name: ServicePool(name, served) for name, served in services.items()}
        self._lanes: list[_Lane] = []
        self._lines: dict[tuple[str, str, str], deque[_InHand]] = {}
        self._answered: SimpleQueue[_InHand] = SimpleQueue()
        self._in_hand: Counter[str] = Counter()
        self._sent: dict[int, dict[int, _InHand]] = {}  # by partition, without acknowledgement
        self._last = 0  # number of the last reply

    def step(self) -> bool:
        """Take waiting calls and send ready replies; never waits for a service.

        Returns whether calls are in hand.

        Raises:
            StoreError: A store failed that is still open.
            TunnelError: Replies cannot be sent.
        """
        for pool in self._pools.values():
            pool.step()
        self._settle()
        for lane in self._look_for_stores():
            try:
                self._take_up(lane)
            except StoreError as error:
                self._lose(lane, error)
        replies: list[UplinkFrame] = []
        while (answered := self._next()) is not None:
            line = self._lines.get(answered.line, deque())
            while line and line[0].reply:
                self._reply(line.popleft(), replies)
            if not line:
                self._lines.pop(answered.line, None)
        if replies:
            crash_point("reply.before")
            self._sender.send(replies)
            crash_point("reply.after")
            self._settle()
        return self._in_hand.total() > 0

    @property
    def counts(self) -> ServiceCounts:
        """Outcomes of calls since this process started; calls in hand count as waiting."""
        return {
            name: {
                "answered": pool.answered,
                "failed": pool.failed,
                "timed_out": pool.timed_out,
                "waiting": self._in_hand[name],
            }
            for name, pool in self._pools.items()
        }

    def close(self) -> None:
        """Ask no service any more; waiting calls stay in their store."""
        for pool in self._pools.values():
            pool.close()

    def _look_for_stores(self) -> list[_Lane]:
        stores = self._stores()
        for lane in self._lanes:
            lane.is_gone = lane.is_gone or not any(lane.store is store for store in stores)
        self._lanes = [lane for lane in self._lanes if not lane.is_gone]
        known = [lane.store for lane in self._lanes]
        self._lanes += [_Lane(each) for each in stores if not any(each is one for one in known)]
        return self._lanes

    def _lose(self, lane: _Lane, error: StoreError) -> None:
        # if the store was given away, its calls belong to its next owner
        if any(lane.store is store for store in self._stores()):
            raise error
        lane.is_gone = True

    def _take_up(self, lane: _Lane) -> None:
        for service in [name for name in lane.held if self._in_hand[name] < IN_HAND]:
            self._scan(lane, lane.held.pop(service), lane.last, service)
        last = lane.store.last_call
        if last > lane.last:
            after, lane.last = lane.last, last
            self._scan(lane, after, last)

    def _scan(self, lane: _Lane, after: int, last: int, only: str | None = None) -> None:
        while calls := lane.store.open_calls(after, IN_HAND):
            for number, call in calls:
                service = call.call.service if call.call.service in self._pools else _NOBODY
                if number > last or only in lane.held:
                    return
                if service in lane.held or only not in {None, service}:
                    continue
                if self._in_hand[service] < IN_HAND:
                    self._ask(_InHand(lane, number, call, service))
                else:
                    lane.held[service] = number - 1
            after = calls[-1][0]

    def _ask(self, asked: _InHand) -> None:
        call, question = asked.call, asked.call.call
        self._in_hand[asked.service] += 1
        self._lines.setdefault(asked.line, deque()).append(asked)

        def on_answer(answer: Answer) -> None:
            value, error = msgspec.Raw(answer.value), answer.error
            reply = CloudReply(question.number, call.incarnation, question.digest, error, value)
            asked.reply = encode_reply(reply)
            self._answered.put(asked)
            self._on_answer()

        pool = self._pools.get(question.service)
        if pool is None:
            known = ", ".join(sorted(self._pools)) or "none"
            error = (
                f"LookupError: there is no service {question.service!r} (spec.services): the "
                f"pipeline has {known}"
            )
            _log.warning("%s", error)
            on_answer(Answer(error=error))
            return
        try:
            asked_for = msgspec.json.decode(question.question, type=dict[str, Any])
        except msgspec.DecodeError as failure:  # made in a guest
            on_answer(Answer(error=f"ValueError: the question is no JSON object: {failure}"))
            return
        key = f"{call.incarnation}/{question.device_id}/{question.number}-{question.digest}"
        pool.ask(
            ServiceCall(question.device_id, question.task, question.task_version, asked_for, key),
            on_answer,
        )

    def _next(self) -> _InHand | None:
        try:
            return self._answered.get_nowait()
        except Empty:
            return None

    def _reply(self, answered: _InHand, replies: list["UplinkFrame"]) -> None:
        call = answered.call
        if answered.lane.is_gone:
            self._in_hand[answered.service] -= 1
            return
        message = DownlinkEnvelope(call.call.device_id, REPLY_KIND, answered.reply)
        self._last += 1
        self._sent.setdefault(call.partition, {})[self._last] = answered
        replies.append((call.partition, self._last, encode_downlink(message)))

    def _settle(self) -> None:
        # a call stays open until its reply is acknowledged
        for partition, sent in self._sent.items():
            for number in self._sender.acks(partition) if sent else ():
                answered = sent.pop(number)
                self._in_hand[answered.service] -= 1
                try:
                    answered.lane.store.close_call(answered.number)
                except StoreError as error:
                    self._lose(answered.lane, error)


def show_services(metrics: Metrics, counts: ServiceCounts) -> None:
    """Add a gauge of the outcomes of each service's calls."""
    gauge = metrics.gauge("walle_service_calls", _CALLS, ["service", "state"])
    for service, states in counts.items():
        for state, count in states.items():
            gauge.set(count, service=service, state=state)
