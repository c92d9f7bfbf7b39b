"""A few features that are worth looking at."""

from pathlib import Path

from walle_stream.app.queries.query import features_lines
from walle_stream.errors import MalformedRowError


def features_sample(data_dir: Path, count: int) -> tuple[list[bytes], MalformedRowError | None]:
    """Return some features for a person: those of the device with most, of few.

    The second value says what was left out where anything was.
    """
    best: list[bytes] = []
    current: list[bytes] = []
    device = None
    try:
        for shown, line in enumerate(features_lines(data_dir)):
            start = line[: line.index(b",")]
            if start != device:
                device, current = start, []
            current.append(line)
            if len(current) > len(best):
                best = current
            if shown > 2_000:  # noqa: PLR2004 - enough to find a busy device
                break
    except MalformedRowError as error:
        return best[:count], error
    return best[:count], None
