"""Recorded events: a file of JSON Lines as ``walle device`` takes it, or a pipeline's source."""

from pathlib import Path
from typing import Final

import msgspec

from walle_stream.errors import SourceError, SourceNotFoundError
from walle_stream.events import Event
from walle_stream.types import device_id_problem

EVENTS_MAX_BYTES: Final = 256 * 1024 * 1024
_decode: Final = msgspec.json.Decoder(Event).decode


def read_events(file: Path) -> bytes:
    """Read recorded events as JSON Lines, and check every line; empty lines are left out.

    Raises:
        SourceNotFoundError: The file does not exist.
        SourceError: A line is not an event, or the file cannot be read or is too large.
    """
    try:
        with file.open("rb") as stream:
            data = stream.read(EVENTS_MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise SourceNotFoundError(f"there is no file {str(file)!r} of recorded events") from error
    except OSError as error:
        raise SourceError(f"{file}: cannot be read: {error.strerror or error}") from error
    return check_events(data, str(file))


def check_events(data: bytes, name: str = "recorded events") -> bytes:
    """Check every line of JSON Lines, and return those that are not empty.

    Raises:
        SourceError: A line is not an event, or the data is too large.
    """
    if len(data) > EVENTS_MAX_BYTES:
        raise SourceError(f"{name}: more than {EVENTS_MAX_BYTES} bytes: record fewer events")
    lines = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            event = _decode(line)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise SourceError(f"{name}:{number}: is no event: {error}") from error
        problem = device_id_problem(event.device_id)
        if problem:
            raise SourceError(f"{name}:{number}: {problem}")
        lines.append(line.strip())
    return b"\n".join(lines)


def record_events(pipeline: Path, limit: int) -> bytes:
    """Return the events of a pipeline's source, in its order, as JSON Lines; blocks.

    Raises:
        WalleError: The definition is wrong, or the source cannot be read.
    """
    from walle_stream.spec.connectors import ConnectorModels, load_connector  # noqa: PLC0415 - heavy
    from walle_stream.spec.loader import UnreadPackage, load_pipeline  # noqa: PLC0415 - same

    loaded = load_pipeline(
        pipeline, connector_models=ConnectorModels(), read_package=UnreadPackage.of_file
    )
    source = load_connector(loaded.pipeline.spec.source.connector).open(loaded.source)
    lines: list[bytes] = []
    reader = source.open({}, 1, loaded.pipeline.spec.runtime.batch_events, limit)
    try:
        while not reader.is_done:
            for batch in reader.read():
                lines += map(msgspec.json.encode, batch.events)
        for batch in reader.drain() if len(lines) >= limit else ():
            lines += map(msgspec.json.encode, batch.events)
    finally:
        reader.close()
    return b"\n".join(lines)
