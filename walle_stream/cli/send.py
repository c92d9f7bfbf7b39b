"""``walle send``: send messages to devices, whether the pipeline runs or not."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from select import select
from typing import Any

import msgspec

from walle_stream.app.messages import MessageSender
from walle_stream.app.resources import find_definition
from walle_stream.errors import MessageError
from walle_stream.wire.message_payload import WHERE_KEYS

STDIN = "-"
_SHOWN_EVERY = 1_000
_READ_BYTES = 64 * 1024


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    device_id: str
    value: msgspec.Raw
    task: str = ""


_decode = msgspec.json.Decoder(_Line).decode


def send(options: argparse.Namespace) -> int:
    """Send messages, and wait until they are stored durably.

    Raises:
        MessageError: A message is malformed.
        WalleError: The tunnel or data directory cannot be opened, or is closed.
    """
    where, words, device_id = dict(options.where), options.words, ""
    is_all = options.all or bool(where)
    if options.lines is not None:
        if words or is_all or options.task:
            options.refuse("--lines takes messages from the file: give no JSON and no receivers")
    elif len(words) != (1 if is_all else 2):
        options.refuse("give DEVICE and JSON, or JSON with --all or --where, or --lines")
    elif not is_all:
        device_id = words[0]
    for key in where.keys() - set(WHERE_KEYS):
        options.refuse(f"argument --where: {key!r} is none of {', '.join(WHERE_KEYS)}")
    value = None if options.lines is not None else _value(words[-1])
    how: dict[str, Any] = {"data_dir": options.data_dir, "name": options.name or ""}
    with MessageSender(find_definition(options.file), options.set, **how) as sender:
        if options.lines is not None:
            _send_lines(sender, options.lines)
        elif is_all:
            sender.send_all(value, where=where, task=options.task)
        else:
            sender.send(device_id, value, task=options.task)
        sender.flush()
    if options.json:
        print(msgspec.json.encode({"messages": sender.count, "name": sender.name}).decode())
    else:
        _tell(sender, is_named=options.lines is not None or not is_all)
    return 0


def _value(text: str) -> msgspec.Raw:
    data = sys.stdin.buffer.read() if text == STDIN else text.encode(errors="surrogateescape")
    # JSON ignores line ends between tokens, and strings contain none
    return msgspec.Raw(data.replace(b"\r", b" ").replace(b"\n", b" ").strip())


def _tell(sender: MessageSender, *, is_named: bool) -> None:
    noun = "message" if sender.count == 1 else "messages"
    print(f"{sender.count:,} {noun} sent as {sender.name}")
    for task in sorted(sender.unknown_tasks):
        print(f"the definition has no task {task!r}: only a release can have brought it")
    if sender.is_placed_by_others and is_named:
        print(
            "placed by Kafka's own partitioner (murmur2): a device whose producer uses another "
            "partitioner is reached by --where device=NAME"
        )


def _send_lines(sender: MessageSender, file: str) -> None:
    # imported here, because a single message has no progress
    from walle_stream.cli.render import count_progress  # noqa: PLC0415

    with ExitStack() as stack:
        on_progress = stack.enter_context(count_progress("sent", "messages"))
        source = sys.stdin.buffer if file == STDIN else stack.enter_context(Path(file).open("rb"))
        for number, line in enumerate(_lines(source.fileno(), sender.push), 1):
            if number % _SHOWN_EVERY == 0:
                on_progress(number)
            if not line.strip():
                continue
            try:
                given = _decode(line)
                sender.send(given.device_id, given.value, task=given.task)
            except (msgspec.MsgspecError, UnicodeDecodeError, MessageError) as error:
                sender.flush()
                raise MessageError(
                    f"{file}:{number}: {error}: the lines before it were sent; correct it and "
                    "send all lines again with the same --name"
                ) from error


def _lines(file: int, on_pause: Callable[[], None]) -> Iterator[bytes]:
    # reads a descriptor, because select cannot see lines in a file object's buffer
    begun: list[bytes] = []
    while True:
        if not select([file], [], [], 0)[0]:
            on_pause()
        data = os.read(file, _READ_BYTES)
        first, *others = data.split(b"\n")
        begun.append(first)
        if others or not data:
            yield b"".join(begun)
            yield from others[:-1]
            begun = others[-1:]
        if not data:
            return
