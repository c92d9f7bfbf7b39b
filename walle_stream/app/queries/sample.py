"""A few features that are worth looking at."""

from collections.abc import Iterator
from pathlib import Path

from walle_stream.app.queries.query import features_lines
from walle_stream.errors import MalformedRowError


def features_sample(data_dir: Path, count: int) -> tuple[list[bytes], MalformedRowError | None]:
    """Return some features for a person: those of the device with most, of few.

    The second value says what was left out where anything was.
    """
    best: list[bytes] = []
    try:
        for best in _samples(data_dir):  # noqa: B007 - the last one is returned
            pass
    except MalformedRowError as error:
        return best[:count], error
    return best[:count], None


def _samples(data_dir: Path) -> Iterator[list[bytes]]:
    # ever better ones
    best: list[bytes] = []
    current: list[bytes] = []
    device = None
    for shown, line in enumerate(features_lines(data_dir)):
        start = line[: line.index(b",")]
        if start != device:
            device, current = start, []
        current.append(line)
        if len(current) > len(best):
            best = current
            yield best
        if shown > 2_000 and best:  # noqa: PLR2004 - enough to find a busy device
            return
