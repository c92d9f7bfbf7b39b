"""Exchange of a partition's devices with the cloud: calls up, messages down.

A call is a row until its reply comes. A reply without such a row is dropped and counted: the cloud
sent it twice, or the device was reinstalled or has forgotten the call. Rows, replies taken and
their effects commit together. ``messages`` handles messages that answer no call.
"""

import logging
from functools import partial
from hashlib import blake2b
from typing import Final

from walle_stream.actors.parts.messages import Messages
from walle_stream.actors.parts.part import Opening, Part
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.actors.turns.turn import Turn
from walle_stream.clock import monotonic_ms
from walle_stream.errors import EnvelopeError
from walle_stream.ports import DeadLetter, Downlink, HasLog
from walle_stream.stream.commands import REPLY_POSITION, Told
from walle_stream.wire.calls import REPLY_KIND, CloudCall, decode_reply, encode_calls
from walle_stream.wire.envelope import DownlinkEnvelope, decode_downlink
from walle_stream.wire.message_payload import MESSAGE_KIND
from walle_stream.wire.rows import PartitionHead

_log = logging.getLogger(__name__)

MESSAGES_MAX_BYTES: Final = 256 * 1024

_SOON_MS: Final = 1_000.0


class Calls(Part):
    """Exchange with the cloud: replies and messages for the turn, calls in its commit."""

    _opening: Opening

    def __init__(self, downlink: Downlink) -> None:
        """Take the downlink."""
        self._downlink = downlink
        self._messages = Messages()
        self.is_behind = True
        """Whether the last check found a message, or more may be available."""
        self._passed = 0  # position after messages for other devices, which alone cause no commit
        self._soon_until_ms = 0.0

    @property
    def is_expecting(self) -> bool:
        """Whether calls were made a moment ago, so that replies may come any time."""
        return monotonic_ms() < self._soon_until_ms

    def restart(self, opening: Opening) -> None:
        """Read the downlink from the last commit's position."""
        self._opening, self._passed = opening, 0
        self._messages.restart(opening)

    def idle(self, turn: Turn) -> bool:
        """Take replies and messages, each once, into the current commit.

        Messages after the last turn wait for the next run.
        """
        if turn.is_last:
            return False
        opening, head, count = self._opening, turn.head, 0
        is_worth = self._messages.go_on(turn)
        self.is_behind = self._messages.is_open
        if self.is_behind:
            return True  # later messages wait for a message to all devices
        head.downlink_position = max(head.downlink_position, self._passed)
        messages = self._downlink.receive(
            opening.number, head.downlink_position, MESSAGES_MAX_BYTES
        )
        if self._is_other_log(head):
            return True  # the head must record it: the next check begins at the new log's beginning
        only, self.is_behind = opening.plan.only_device, bool(messages)
        if not messages and isinstance(self._downlink, HasLog):
            self.is_behind = self._downlink.is_behind(opening.number)
        for position, data in messages:
            if only and _device_of(data) not in {only, ""}:
                head.downlink_position = position
                continue
            count += 1
            head.counters.messages += 1
            try:
                if not self._take(position, decode_downlink(data), turn):
                    head.counters.messages -= 1  # a message to all devices counts at its end
                    break
            except EnvelopeError as error:
                # refusing the message for ever would stop the partition
                head.counters.dropped_messages += 1
                turn.dead_letters.append(self._dead_letter(position, data, error))
            head.downlink_position = position
        if not count:
            self._passed = head.downlink_position
        return count > 0 or is_worth

    def contribute(self, turn: Turn, rows: PartitionRows) -> None:
        """Write calls as open, and make frames of them."""
        opening, head, done = self._opening, turn.head, turn.done
        if done.calls:
            for run, number, name, question in opening.machine.complete_calls(done.calls):
                version = opening.sets.versions[run.program]
                call = CloudCall(run.device_id, number, run.task, version, *question)
                rows.put_call(name, call)
                turn.calls.append(call)
            head.counters.calls += len(turn.calls)
            turn.bodies += encode_calls(turn.calls, opening.plan.compression)
            self._soon_until_ms = monotonic_ms() + _SOON_MS
        # the tunnel may delete committed messages
        turn.on_durable.append(
            partial(self._downlink.release, opening.number, head.downlink_position)
        )

    def _is_other_log(self, head: PartitionHead) -> bool:
        # checked after the messages: messages of another log are never taken for this one's
        log_id = self._downlink.log_id if isinstance(self._downlink, HasLog) else ""
        known = head.downlink_log
        if not log_id or log_id == known:
            return False
        head.downlink_log = log_id
        if not known:
            return False
        _log.warning(
            "the downlink of partition %d was made anew: it is read from its beginning, after "
            "position %d of the old one",
            self._opening.number,
            head.downlink_position,
        )
        head.downlink_position = self._passed = 0
        head.broadcast = None
        return True

    def _take(self, position: int, envelope: DownlinkEnvelope, turn: Turn) -> bool:
        if envelope.kind == MESSAGE_KIND:
            return self._messages.take(position, envelope, turn)
        if envelope.kind != REPLY_KIND:
            raise EnvelopeError(
                f"the message kind {envelope.kind[:40]!r} is unknown, this side takes {REPLY_KIND} "
                f"and {MESSAGE_KIND}: send one of these, or install a newer version here"
            )
        self._take_reply(envelope, turn)
        return True

    def _take_reply(self, envelope: DownlinkEnvelope, turn: Turn) -> None:
        rows, counters = self._opening.rows, turn.head.counters
        reply = decode_reply(envelope.payload)
        row = None
        if reply.incarnation == self._opening.incarnation:
            row = rows.take_call(envelope.device_id, reply.number, reply.digest)
        if row is None:
            counters.dropped_messages += 1
            return
        counters.replies += 1
        name, call = row
        if call.task in self._opening.sets.names:
            given = [name, call.service, reply.error, bytes(reply.value)]
            position = REPLY_POSITION + reply.number
            turn.told.append(Told(envelope.device_id, call.task, position, given))

    def _dead_letter(self, position: int, data: bytes, error: EnvelopeError) -> DeadLetter:
        return DeadLetter(
            route="decode",
            reason=str(error),
            origin=f"downlink-{self._opening.number}@{position}",
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
        return None  # the device is unknown
