"""What the cloud side holds of its senders: questions to its actor, wherever that is."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from walle_stream.cloud.calls import IN_HAND
from walle_stream.cloud.partition_table import PartitionTable
from walle_stream.cloud.service_pool import REPLY_MAX_BYTES
from walle_stream.errors import ActorDeadError, EnvelopeError
from walle_stream.ports import Downlink
from walle_stream.wire.calls import REPLY_KIND, decode_reply
from walle_stream.wire.envelope import decode_downlink


class LastFrame(msgspec.Struct):
    """Question: which frame of a partition arrived last, or is in the tunnel?"""

    incarnation: str
    partition: int


class LastNumbers(msgspec.Struct):
    """Question: which features of devices arrived last?"""

    incarnation: str
    device_ids: list[str]


class CallsInHand(msgspec.Struct):
    """Question: which calls of a partition will be answered, or are so in the tunnel?"""

    incarnation: str
    partition: int
    position: int
    """Of the last message down that the partition has taken."""


class CloudHoldings:
    """What the cloud side holds, as ``Holdings``: asked of its actor, wherever that is."""

    def __init__(self, ask: Callable[[Any], Any] | None = None) -> None:
        """Begin; the function that puts a question to the actor may be given later."""
        self.ask = ask

    def last_frame(self, incarnation: str, partition: int) -> tuple[int, int]:
        """Return epoch and number of a partition's last frame; see ``Holdings.last_frame``."""
        epoch, number = self._asked(LastFrame(incarnation, partition))
        return epoch, number

    def last_numbers(self, incarnation: str, device_ids: Sequence[str]) -> Sequence[int]:
        """Return devices' last numbers; see ``Holdings.last_numbers``."""
        numbers: list[int] = self._asked(LastNumbers(incarnation, list(device_ids)))
        return numbers

    def calls_in_hand(self, incarnation: str, partition: int, position: int) -> set[str]:
        """Return which calls will be answered; see ``Holdings.calls_in_hand``."""
        digests: set[str] = self._asked(CallsInHand(incarnation, partition, position))
        return digests

    def _asked(self, question: Any) -> Any:
        if self.ask is None:
            raise ActorDeadError("the cloud side was not started")
        return self.ask(question)


def calls_in_hand(store: PartitionTable, downlink: Downlink, asked: CallsInHand) -> set[str]:
    """Return the digests of a partition's calls that wait, or whose reply goes down; blocks.

    Answers what ``Holdings.calls_in_hand`` asks; the downlink is only looked at.
    """
    digests, after, position = set[str](), 0, asked.position
    sender = asked.incarnation, asked.partition
    while calls := store.open_calls(after, IN_HAND):
        after = calls[-1][0]
        digests |= {
            call.call.digest for _, call in calls if (call.incarnation, call.partition) == sender
        }
    while messages := downlink.receive(asked.partition, position, REPLY_MAX_BYTES):
        position = messages[-1][0]
        digests |= _replies_in([data for _, data in messages], asked.incarnation)
    return digests


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
