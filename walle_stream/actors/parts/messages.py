"""Messages of the cloud to scripts: their receivers, each once, in order for each device.

A message gets the partition's next number when it is taken, and its runs have that number's
position. The boundaries of turns therefore change nothing. A message for a device without any event
waits as a row, and runs before the device's first event. A message for all devices goes to a
thousand of them per commit, in the order of their ids; later messages wait meanwhile.

A sender's numbers ascend: a number that does not is a repetition. A thousand senders are
remembered.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from walle_stream.actors.parts.part import Opening
from walle_stream.actors.rows import message_rows
from walle_stream.actors.turns.turn import Turn
from walle_stream.errors import EnvelopeError
from walle_stream.ports import InstalledTask
from walle_stream.stream.commands import MESSAGE_POSITION, Told
from walle_stream.stream.task_sets import DEFAULT_SET
from walle_stream.types import device_id_problem
from walle_stream.wire.envelope import DownlinkEnvelope
from walle_stream.wire.message_payload import MessagePayload, decode_payload
from walle_stream.wire.rows import PartitionHead

WAITING_MAX: Final = 10_000
WAITING_MAX_BYTES: Final = 16 * 1024 * 1024
SENDERS_MAX: Final = 1_000
DEVICES_AT_ONCE: Final = 1_000
"""Number of devices that get a message for all devices in one commit."""


class Messages:
    """Messages of one partition. One thread, the device host's; blocks on the store."""

    _opening: Opening

    def restart(self, opening: Opening) -> None:
        """Begin at the state of the last commit."""
        self._opening = opening
        self._senders = dict(message_rows.senders(opening.rows))  # by time of the last message
        self._waiting: dict[str, list[int]] = {}
        self._waiting_bytes = 0
        for number, (device_id, *_, payload) in message_rows.waiting_messages(opening.rows):
            self._waiting.setdefault(device_id, []).append(number)
            self._waiting_bytes += len(payload)
        self._open: tuple[int, DownlinkEnvelope, MessagePayload] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a message for all devices is in progress, so that others must wait."""
        return self._open is not None

    def go_on(self, turn: Turn) -> bool:
        """Deliver waiting messages to devices that now exist, and continue a message for all.

        Returns whether there was such a message.
        """
        is_active = self._opening.machine.is_active
        came = [device_id for device_id in self._waiting if is_active(device_id)]
        for device_id in came:
            self._let_in(device_id, turn)
        if self._open is not None:
            self._broadcast(turn, *self._open)
            turn.head.counters.messages += not self.is_open
            return True
        return bool(came)

    def take(self, position: int, envelope: DownlinkEnvelope, turn: Turn) -> bool:
        """Take the message at a position of the log.

        Returns whether the message is done; otherwise it is in progress, and later ones must wait.

        Raises:
            EnvelopeError: The message is malformed, or too many messages wait.
        """
        head, device_id = turn.head, envelope.device_id
        payload = decode_payload(envelope.payload)
        if envelope.sender and envelope.number <= self._senders.get(envelope.sender, -1):
            self._remember(envelope, turn)
            head.counters.dropped_messages += 1
            return True
        if not device_id:
            if head.broadcast is None or head.broadcast[0] != position:
                head.broadcast = position, ""
            self._broadcast(turn, position, envelope, payload)
            return not self.is_open
        problem = device_id_problem(device_id)
        if problem is not None:
            raise EnvelopeError(f"a message is malformed: {problem}")
        self._remember(envelope, turn)
        if self._is_known(device_id):
            turn.told += self._for([device_id], *_told(envelope, payload, head))
        else:
            self._let_wait(envelope, turn)
        head.next_message += 1
        return True

    def _is_known(self, device_id: str) -> bool:
        opening = self._opening
        is_here = device_id == opening.plan.only_device or opening.machine.is_active(device_id)
        return is_here or opening.rows.device(device_id) is not None

    def _for(
        self,
        device_ids: Sequence[str],
        whose: tuple[str, int],
        payload: MessagePayload,
        position: int,
        clock_ms: int | None = None,
    ) -> list[Told]:
        given, pattern = [*whose, bytes(payload.value)], payload.where.get("device", "*")
        found, of_sets = list[Told](), dict[str, Sequence[str]]()
        for device_id in device_ids:
            set_id = self._set_of(device_id)
            if set_id not in of_sets:
                of_sets[set_id] = _tasks_for(payload, self._opening.sets.tasks(set_id))
            if fnmatchcase(device_id, pattern):
                found += [
                    Told(device_id, task, position, given, clock_ms) for task in of_sets[set_id]
                ]
        return found

    def _set_of(self, device_id: str) -> str:
        machine, rows = self._opening.machine, self._opening.rows
        if not machine.is_active(device_id):
            if rows.device(device_id) is None:
                return DEFAULT_SET  # an agent's device, which begins with this message
            rows.wake(machine, [device_id])
        return machine.task_set(device_id)

    def _broadcast(
        self, turn: Turn, position: int, envelope: DownlinkEnvelope, payload: MessagePayload
    ) -> None:
        head, only = turn.head, self._opening.plan.only_device
        last = head.broadcast[1] if head.broadcast is not None else ""
        device_ids = [only] if only else self._devices(last)
        turn.told += self._for(device_ids, *_told(envelope, payload, head))
        if len(device_ids) == DEVICES_AT_ONCE:
            head.broadcast, self._open = (position, device_ids[-1]), (position, envelope, payload)
            return
        self._remember(envelope, turn)
        head.next_message += 1
        head.broadcast = self._open = None
        head.downlink_position = position

    def _devices(self, behind: str) -> list[str]:
        # the row of a device may be written long after its first event
        opening = self._opening
        active = (each for each in opening.machine.excess(0) if each > behind)
        return sorted({*opening.rows.device_ids(behind, DEVICES_AT_ONCE), *active})[
            :DEVICES_AT_ONCE
        ]

    # Waiting messages

    def _let_wait(self, envelope: DownlinkEnvelope, turn: Turn) -> None:
        head, payload = turn.head, envelope.payload
        size_bytes = self._waiting_bytes + len(payload)
        if head.waiting_messages >= WAITING_MAX or size_bytes > WAITING_MAX_BYTES:
            raise EnvelopeError(
                f"{head.waiting_messages:,} messages of {self._waiting_bytes:,} bytes wait for "
                f"devices of this partition that have sent no event. There is no room for one "
                f"to {envelope.device_id!r}: check the devices' ids, then send it again"
            )
        number, clock_ms = head.next_message, max(self._opening.machine.watermark_ms, 0)
        sender = envelope.sender, envelope.number
        waiting = envelope.device_id, clock_ms, *sender, payload
        message_rows.put_waiting(self._opening.rows, number, waiting)
        self._waiting.setdefault(envelope.device_id, []).append(number)
        self._waiting_bytes = size_bytes
        head.waiting_messages += 1

    def _let_in(self, device_id: str, turn: Turn) -> None:
        numbers = self._waiting.pop(device_id)
        turn.head.waiting_messages -= len(numbers)
        for number, waiting in message_rows.take_waiting(self._opening.rows, numbers):
            _, clock_ms, sender, senders_number, data = waiting
            self._waiting_bytes -= len(data)
            how = decode_payload(data), number - MESSAGE_POSITION, clock_ms
            turn.told_before += self._for([device_id], (sender, senders_number), *how)

    def _remember(self, envelope: DownlinkEnvelope, turn: Turn) -> None:
        sender, rows, known = envelope.sender, self._opening.rows, self._senders
        if not sender:
            return
        number = known[sender] = max(envelope.number, known.pop(sender, -1))
        message_rows.put_sender(rows, sender, number, turn.head.counters.messages)
        if len(known) > SENDERS_MAX:
            oldest = next(iter(known))
            del known[oldest]
            message_rows.drop_sender(rows, oldest)


def _told(
    envelope: DownlinkEnvelope, payload: MessagePayload, head: PartitionHead
) -> tuple[tuple[str, int], MessagePayload, int]:
    whose = envelope.sender, envelope.number
    return whose, payload, MESSAGE_POSITION + head.next_message


def _tasks_for(payload: MessagePayload, tasks: Mapping[str, InstalledTask]) -> list[str]:
    name, _, version = payload.where.get("task", "").partition("@")
    if name and (name not in tasks or version not in {"", tasks[name].version}):
        return []
    return [
        name for name, task in tasks.items() if task.takes_messages and payload.task in {"", name}
    ]
