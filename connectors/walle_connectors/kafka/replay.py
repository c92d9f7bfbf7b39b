"""``walle replay``: sends a file's events to a topic, at full or recorded speed, or records one.

The key of a record is the line's ``device_id``, its value the unchanged line, so event times stay.
``recording`` writes such a file from a topic. Meant for trials of pipelines and for benchmarks.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec
from pydantic import ValidationError
from rich.console import Console
from rich.progress import Progress

from walle_connectors.file_stream import READ_ERRORS, FileStream
from walle_connectors.kafka.drivers import driver_problem
from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_connectors.kafka.source.records import EventValue
from walle_connectors.probe import probe_brokers
from walle_stream.clock import monotonic_ms
from walle_stream.errors import SourceError
from walle_stream.reading.dead_letters import BAD_TIME
from walle_stream.types import TIME_MAX_MS, device_id_problem

_CONNECT_MS: Final = 10_000
_LINE_BYTES: Final = 64 * 2**20
_EVENT_MAX_BYTES: Final = 64 * 2**20  # the topic's own limit decides
_SHOWN: Final = 40  # characters of a wrong name
_SLEEP_S: Final = 0.5  # short, for Ctrl-C and the progress bar


class _Line(EventValue, kw_only=True, gc=False):
    # an event of the source plus its device, which becomes the record's key
    device_id: str
    ingest_time_ms: int | None = None


def add(commands: Any) -> None:
    """Add the command to the parser; an entry point of ``walle_stream.commands``."""
    parser = commands.add_parser(
        "replay", help="write the events of a file to a Kafka topic, or record a topic"
    )
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="JSON Lines of events; gzip is recognised"
    )
    parser.add_argument("--topic", required=True, help="topic keyed by device")
    parser.add_argument(
        "--brokers", required=True, action="append", metavar="HOST:PORT", help="may be repeated"
    )
    for name, text in (("ca", "the brokers' CA"), ("cert", "our certificate"), ("key", "its key")):
        parser.add_argument(
            f"--tls-{name}", type=Path, metavar="FILE", help=f"PEM, for TLS: {text}"
        )
    for name, text in (
        ("mechanism", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER, if brokers ask for it"),
        ("username", "for all mechanisms but OAUTHBEARER"),
        ("password", "file with the password"),
        ("token", "file with the token, for OAUTHBEARER"),
    ):
        parser.add_argument(f"--sasl-{name}", metavar="X", help=text)
    parser.add_argument(
        "--driver",
        choices=("kafka-python", "confluent"),
        default="kafka-python",
        help="client library",
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--record", action="store_true", help="write the topic's records to FILE")
    way.add_argument(
        "--speed",
        type=_speed,
        metavar="X",
        help="1: as fast as the events came, 2: twice as fast; default: at full speed",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object as the last line")
    parser.set_defaults(run=partial(run, refuse=parser.error))


def run(options: argparse.Namespace, refuse: Callable[[str], NoReturn]) -> int:
    """Replay or record; a failed recording leaves no file.

    ``refuse`` reports wrong usage with a reason and ends the command.

    Raises:
        SourceError: The file cannot be read or written, or the topic cannot be recorded.
        TopicError: The topic is missing or refuses the events.
        BrokerUnreachableError: No broker answers, or TLS is refused.
    """
    model = _model(options, refuse)
    if problem := driver_problem(model.driver, "--driver"):
        raise SourceError(problem)
    if not options.record and (options.file.is_dir() or not options.file.exists()):
        raise SourceError(f"there is no file {str(options.file)!r}: correct FILE")
    probe_brokers(model, _CONNECT_MS)
    began_ms = monotonic_ms()
    if options.record:
        counts = _record(model, options.file)
    else:
        counts = _replay(model, options.file, options.speed)
    counts["seconds"] = round((monotonic_ms() - began_ms) / 1000.0, 3)
    if options.json:
        sys.stdout.write(json.dumps({"file": str(options.file), "topic": options.topic, **counts}))
        sys.stdout.write("\n")
    else:
        arrow = "<-" if options.record else "->"
        sys.stdout.write(
            f"{options.file} {arrow} {options.topic}: {counts['events']:,} events, "
            f"{counts['bytes']:,} bytes in {counts['seconds']:.1f} s{_skipped(counts)}\n"
        )
    return 0


def _skipped(counts: Mapping[str, Any]) -> str:
    count = counts.get("skipped", 0)
    return f"; {count:,} records without a valid event were skipped" if count else ""


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return speed


def _model(options: argparse.Namespace, refuse: Callable[[str], NoReturn]) -> KafkaSourceModel:
    tls = {name: getattr(options, f"tls_{name}") for name in ("ca", "cert", "key")}
    given = {name: path for name, path in tls.items() if path is not None}
    if ("cert" in given) != ("key" in given):
        refuse("--tls-cert and --tls-key: expected both, or none of them")
    names = ("mechanism", "username", "password", "token")
    sasl = {name: value for name in names if (value := getattr(options, f"sasl_{name}"))}
    keys = {"brokers": options.brokers, "clientId": "walle-replay", "tls": given or None}
    keys |= {"sasl": sasl or None, "driver": options.driver}
    try:
        return KafkaSourceModel.model_validate({**keys, "topic": options.topic})
    except ValidationError as error:
        first = error.errors()[0]
        option = "--" + "-".join(map(str, first["loc"]))
        problem = first["msg"].removeprefix("Value error, ")
        if option == "--topic":
            problem = (
                "expected at most 249 letters, digits, dots, dashes and underscores, and more "
                f"than one or two dots, found {options.topic[:_SHOWN]!r}"
            )
        refuse(f"{option}: {problem}")


def _record(model: KafkaSourceModel, file: Path) -> dict[str, Any]:
    from walle_connectors.kafka.recording import record  # noqa: PLC0415 - heavy

    return record(model, file)


def _replay(model: KafkaSourceModel, file: Path, speed: float | None) -> dict[str, Any]:
    from walle_connectors.kafka.writing import TopicWriter  # noqa: PLC0415 - heavy

    writer = TopicWriter(model, model.topic, max_bytes=_EVENT_MAX_BYTES, named_by="--topic")
    stream = FileStream(file)
    pace, size_bytes = _Pace(speed), 0
    try:
        with _bar() as bar:
            shown = bar.add_task("replaying", total=1.0)
            for line, head in _lines(stream, file.name):
                pace.wait(head.ingest_time_ms or head.event_time_ms)
                writer.write(head.device_id.encode(), line)
                size_bytes += len(line)
                if writer.records % 1_000 == 0:
                    bar.update(shown, completed=stream.progress)
        writer.flush()
    except SourceError as error:
        writer.flush()
        raise SourceError(f"{error}; the {writer.records:,} events before it are sent") from error
    finally:
        stream.close()
        writer.close()
    return {"events": writer.records, "bytes": size_bytes}


class _Pace:
    """Keeps the recorded intervals between events, divided by the speed."""

    def __init__(self, speed: float | None) -> None:
        self._speed = speed
        self._first: tuple[int, float] | None = None

    def wait(self, time_ms: int) -> None:
        if self._speed is None or abs(time_ms) > TIME_MAX_MS:  # no wait for an impossible time
            return
        now_ms = monotonic_ms()
        if self._first is None:
            self._first = (time_ms, now_ms)
        first_ms, began_ms = self._first
        due_ms = began_ms + (time_ms - first_ms) / self._speed
        while (left_s := (due_ms - monotonic_ms()) / 1000.0) > 0:
            time.sleep(min(left_s, _SLEEP_S))


def _lines(stream: FileStream, name: str) -> Iterator[tuple[bytes, _Line]]:
    decode = msgspec.json.Decoder(_Line).decode
    number = 0
    try:
        stream.skip_mark()
        while line := stream.bytes.readline(_LINE_BYTES):
            number += 1
            line = line.rstrip(b"\r\n")
            if not line.strip():
                continue
            try:
                head = decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise SourceError(f"{name}:{number}: not an event: {error}; correct it") from error
            problem = device_id_problem(head.device_id)
            if not 0 <= head.event_time_ms <= TIME_MAX_MS:
                problem = problem or BAD_TIME
            if problem:
                raise SourceError(f"{name}:{number}: {problem}; correct it")
            yield line, head
    except READ_ERRORS as error:
        raise SourceError(f"reading of {name} failed after line {number} ({error})") from error


def _bar() -> Progress:
    return Progress(console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True)
