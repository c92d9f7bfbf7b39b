"""Sending of messages to the devices of a pipeline, whether it runs or not.

Over Kafka a message goes to the device's partition in the pipeline. With the embedded tunnel it
goes to the data directory's inbox. The sender looks up no device and remembers none.
"""

from collections.abc import Callable, Mapping, Sequence
from json import dumps
from pathlib import Path
from threading import Event
from typing import Any, Final, Self
from uuid import uuid4

import msgspec

from walle_stream.errors import MessageError, SpecFileError, TopicError
from walle_stream.spec.connectors import ConnectorModels, load_connector, placing_of
from walle_stream.spec.loader import UnreadPackage, load_pipeline
from walle_stream.spec.models import Task
from walle_stream.store.datadir import DataDir
from walle_stream.store.inbox import InboxSender
from walle_stream.types import UplinkFrame, device_id_problem
from walle_stream.wire.envelope import DownlinkEnvelope, encode_downlink
from walle_stream.wire.message_payload import (
    MESSAGE_KIND,
    MESSAGE_MAX_BYTES,
    WHERE_KEYS,
    MessagePayload,
    encode_payload,
)
from walle_stream.wire.strict_json import value_problem

WAITING_MAX_BYTES: Final = 8 * 1024 * 1024
"""Maximum bytes of messages that are sent and not acknowledged."""

_TOGETHER: Final = 500
_TOGETHER_BYTES: Final = 256 * 1024
_LOOK_S: Final = 0.005


class MessageSender:
    """Sender of messages with its own numbers, from 1. Close it; ``with`` does. One thread.

    Two messages with the same sender name and number count as one. Messages sent again after a
    crash, in the same order and under the same name, therefore arrive once.
    """

    def __init__(
        self,
        file: Path,
        overrides: Sequence[str] = (),
        *,
        data_dir: Path | None = None,
        name: str = "",
    ) -> None:
        """Connect to the devices of a pipeline; blocks for some seconds at most.

        Args:
            file: The pipeline's YAML.
            overrides: Like ``--set``, each ``a.b=c``.
            data_dir: Data directory of the run, with an embedded tunnel; ``walle-data/NAME`` by
                default.
            name: The sender's name, to which the numbers belong; random by default.

        Raises:
            SpecFileError: The definition is wrong, or its tunnel cannot carry messages to devices.
            WalleError: The connection to the devices cannot be opened.
        """
        loaded = load_pipeline(
            file,
            overrides,
            connector_models=ConnectorModels(),
            read_package=UnreadPackage.of_file,
        )
        spec, pipeline = loaded.pipeline.spec, loaded.pipeline.metadata.name
        self.name = name or uuid4().hex
        self.count = 0
        """Number of the last message sent.

        A caller that knows the number of acknowledged messages of a name may set it before the
        first message, to continue after them.
        """
        self._partitions = range(1)
        self._file = file
        self._names = {each.metadata.name for each in loaded.tasks if isinstance(each, Task)}
        # the tasks of packages are unknown here, and a release may have added tasks on remote
        # devices
        self._are_all = spec.reports is None and len(self._names) == len(loaded.tasks)
        self.unknown_tasks: set[str] = set()
        """Names of addressed tasks that only a release may have installed."""
        self._waiting: list[UplinkFrame] = []
        self._bytes = self._missing = 0
        connector = load_connector(spec.tunnel.connector)
        self.is_placed_by_others = False
        """Whether the source's producers decide the partition of a device."""
        self._place: Callable[[str], int] = lambda _: 0  # the reader of the inbox places them
        if hasattr(connector, "open_sender"):
            count, self._are_all = spec.runtime.partitions, False
            self._partitions = range(count)
            source = load_connector(spec.source.connector)
            placing = placing_of(source, connector)
            self.is_placed_by_others = hasattr(source, "device_partition")
            self._place = lambda device_id: placing(device_id, count)
            self._sender: Any = connector.open_sender(loaded.tunnel, WAITING_MAX_BYTES, count)
        elif hasattr(connector, "open_tables") and spec.runtime.kind != "cluster":
            folder = DataDir.open_inbox(data_dir or Path("walle-data") / pipeline, pipeline)
            self._sender = InboxSender(folder)
            self._are_all = self._are_all and not any((folder.parent / "packages").glob("*"))
        else:
            raise SpecFileError(
                f"{file}: the connector {spec.tunnel.connector!r} of spec.tunnel carries no "
                f"messages to runs of spec.runtime.kind {spec.runtime.kind}: send over Kafka"
            )

    def send(self, device_id: str, value: Any, *, task: str = "") -> None:
        """Send a JSON value to a device; blocks while too many bytes are unacknowledged.

        ``task`` names the receiving task; by default all tasks that take messages receive it.

        Raises:
            MessageError: The value is no JSON or too large, or the device id or task is invalid.
            WalleError: The sender is closed.
        """
        problem = device_id_problem(device_id)
        if problem is not None:
            raise MessageError(problem)
        self._send(device_id, MessagePayload(_encoded(value), task), [self._place(device_id)])

    def send_all(
        self, value: Any, *, where: Mapping[str, str] | None = None, task: str = ""
    ) -> None:
        """Send a JSON value to all devices, or to those that meet the conditions.

        ``where`` has conditions, each of which must hold: ``device``, a pattern such as ``phone-*``
        for the id, and ``task``, a task of the device, as NAME or NAME@VERSION.

        Raises:
            MessageError: The value is no JSON or too large, or a condition or task is unknown.
            WalleError: The sender is closed.
        """
        where = dict(where or {})
        for key in where.keys() - set(WHERE_KEYS):
            raise MessageError(f"there is no condition {key!r}: use {', '.join(WHERE_KEYS)}")
        self._send("", MessagePayload(_encoded(value), task, where), self._partitions)

    def push(self) -> None:
        """Send the collected messages; blocks while too many bytes are unacknowledged.

        Raises:
            WalleError: The sender is closed.
        """
        if self._waiting:
            self._sender.send(self._waiting)
            self._missing += len(self._waiting)
            self._waiting, self._bytes = [], 0
        self._take_acks()

    def flush(self) -> None:
        """Block until all messages are acknowledged, so that no failure can lose them.

        Raises:
            TopicError: The topic refused some messages as too large; they were left out.
            WalleError: The sender is closed.
        """
        self.push()
        tick = Event()
        while self._take_acks():
            tick.wait(_LOOK_S)
        if self._sender.refused_records:
            raise TopicError(
                f"the topic refused {self._sender.refused_records:,} messages: see the log, and "
                "raise max.message.bytes of the topic and spec.tunnel.maxBytes"
            )

    def close(self) -> None:
        """Close the connection; messages that were not flushed may be lost."""
        self._sender.close()

    def __enter__(self) -> Self:
        """Return the sender."""
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Flush unless the block failed, and close."""
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    def _send(self, device_id: str, payload: MessagePayload, partitions: Sequence[int]) -> None:
        for task in {payload.task, payload.where.get("task", "").partition("@")[0]} - {""}:
            if task not in self._names and self._are_all:
                raise MessageError(
                    f"{self._file}: there is no task {task!r}, its tasks are "
                    f"{', '.join(sorted(self._names))}"
                )
            self.unknown_tasks |= {task} - self._names
        data = encode_payload(payload)
        if len(data) > MESSAGE_MAX_BYTES:
            raise MessageError(
                f"a message of {len(data):,} bytes is too large: at most {MESSAGE_MAX_BYTES:,} "
                "are allowed"
            )
        self.count += 1
        envelope = DownlinkEnvelope(device_id, MESSAGE_KIND, data, self.name, self.count)
        encoded = encode_downlink(envelope)
        self._waiting += [(partition, self.count, encoded) for partition in partitions]
        self._bytes += len(encoded)
        if len(self._waiting) >= _TOGETHER or self._bytes >= _TOGETHER_BYTES:
            self.push()

    def _take_acks(self) -> int:
        # the number of missing acknowledgements
        for partition in self._partitions:
            self._missing -= len(list(self._sender.acks(partition)))
        return self._missing


def _encoded(value: Any) -> msgspec.Raw:
    try:
        if isinstance(value, msgspec.Raw):
            data = bytes(value)
        else:  # msgspec would silently encode NaN as null
            data = dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise MessageError(f"the value is no JSON: {error}") from error
    problem = value_problem(data)
    if problem is not None:
        raise MessageError(f"the value is no JSON: {problem}")
    return msgspec.Raw(data)
