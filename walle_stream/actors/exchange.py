"""The exchange of a partition's devices with the cloud: calls up, messages down.

A call is a row until its reply came: what answers no such row, because the cloud
sent it twice, or for a device that was reinstalled or has forgotten, is dropped and
counted. Rows, replies taken and what they did commit together.
"""

import logging
from collections.abc import Container, Mapping, Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from walle_stream.actors.partition_rows import PartitionRows
from walle_stream.errors import EnvelopeError
from walle_stream.ports import DeadLetter, Downlink, HasLog
from walle_stream.stream.commands import Reply, RunTask
from walle_stream.wire.calls import CloudCall
from walle_stream.wire.envelope import DownlinkEnvelope, decode_downlink
from walle_stream.wire.replies import REPLY_KIND, decode_reply
from walle_stream.wire.rows import PartitionHead

_log = logging.getLogger(__name__)

MESSAGES_MAX_BYTES: Final = 256 * 1024
"""Most bytes of downlink messages taken in one commit."""

type NumberedCall = tuple[RunTask, int, str, tuple[str, bytes]]
"""(run, number, name, (service, question))."""


class Inbound(msgspec.Struct):
    """What came down and is taken with the next commit."""

    replies: list[Reply]
    dead_letters: list[DeadLetter]
    count: int = 0
    """Messages, whatever became of them."""


class CloudExchange:
    """Exchange of one partition. One thread, the device host's."""

    def __init__(
        self,
        number: int,
        rows: PartitionRows,
        downlink: Downlink,
        incarnation: str,
        only_device: str = "",
    ) -> None:
        """Take over.

        Args:
            number: Which partition.
            rows: Its database.
            downlink: Where messages for its devices come from.
            incarnation: Of the data directory.
            only_device: Whose messages are taken; empty for all devices'.
        """
        self._only = only_device
        self._passed = 0  # behind others' messages, which are no reason for a commit
        self._number = number
        self._rows = rows
        self._downlink = downlink
        self._incarnation = incarnation

    def take(self, head: PartitionHead, tasks: Container[str]) -> Inbound:
        """Take messages down, into rows of the commit at hand; never blocks.

        Args:
            head: Gets the position behind them and counts them.
            tasks: Whose replies are taken; others' are dropped.

        Returns:
            The replies among them, each once.
        """
        inbound = Inbound([], [])
        head.downlink_position = max(head.downlink_position, self._passed)
        messages = self._downlink.receive(self._number, head.downlink_position, MESSAGES_MAX_BYTES)
        if self._is_other_log(head):
            return inbound  # the next look begins at its beginning
        for position, data in messages:
            head.downlink_position = position
            if self._only and _device_of(data) != self._only:
                continue
            inbound.count += 1
            try:
                self._take(decode_downlink(data), head, tasks, inbound)
            except EnvelopeError as error:
                # refusing it for ever would stop the partition
                head.counters.dropped_messages += 1
                inbound.dead_letters.append(self._dead_letter(position, data, error))
        head.counters.messages += inbound.count
        if not inbound.count:
            self._passed = head.downlink_position
        return inbound

    def _is_other_log(self, head: PartitionHead) -> bool:
        # asked behind the messages: those of another log are never taken for this one's
        log_id = self._downlink.log_id if isinstance(self._downlink, HasLog) else ""
        known = head.downlink_log
        if not log_id or log_id == known:
            return False
        head.downlink_log = log_id
        if not known:
            return False
        _log.warning(
            "the way down of partition %d was made anew: it is read from its beginning, behind "
            "position %d of the old one",
            self._number,
            head.downlink_position,
        )
        head.downlink_position = self._passed = 0
        return True

    def release(self, position: int) -> None:
        """Let the tunnel forget what commits took.

        Args:
            position: Of the last message taken by one that is durable.
        """
        self._downlink.release(self._number, position)

    def put_calls(
        self, calls: Sequence[NumberedCall], task_version: Mapping[str, str]
    ) -> list[CloudCall]:
        """Write calls as open, into rows of the commit at hand.

        Returns:
            The same, as they travel.
        """
        asked = []
        for run, number, name, (service, question) in calls:
            version = task_version[run.program]
            call = CloudCall(run.device_id, number, run.task, version, service, question)
            self._rows.put_call(name, call)
            asked.append(call)
        return asked

    def _take(
        self,
        envelope: DownlinkEnvelope,
        head: PartitionHead,
        tasks: Container[str],
        inbound: Inbound,
    ) -> None:
        if envelope.kind != REPLY_KIND:
            message = {"kind": envelope.kind, "payload": msgspec.Raw(envelope.payload)}
            self._rows.put_message(
                envelope.device_id, envelope.sequence_number, msgspec.json.encode(message)
            )
            return
        reply = decode_reply(envelope.payload)
        found = None
        if reply.incarnation == self._incarnation:
            found = self._rows.take_call(envelope.device_id, reply.number, reply.digest)
        if found is None:
            head.counters.dropped_messages += 1
            return
        head.counters.replies += 1
        name, call = found
        if call.task in tasks:
            given = [name, call.service, reply.error, bytes(reply.value)]
            inbound.replies.append(Reply(envelope.device_id, call.task, reply.number, given))

    def _dead_letter(self, position: int, data: bytes, error: EnvelopeError) -> DeadLetter:
        return DeadLetter(
            route="decode",
            reason=str(error),
            origin=f"downlink-{self._number}@{position}",
            error=type(error).__name__,
            raw=data[:1_024].decode("utf-8", "replace"),
            digest=blake2b(data, digest_size=16).hexdigest(),
            holds="message",
            size_bytes=len(data),
        )


def _device_of(data: bytes) -> str | None:
    try:
        return decode_downlink(data).device_id
    except EnvelopeError:
        return None  # nobody knows whose it is
