"""A small sample of features for people."""

from pathlib import Path

from walle_stream.app.queries.query import features_lines
from walle_stream.errors import MalformedRowError


def features_sample(data_dir: Path, count: int) -> tuple[list[bytes], MalformedRowError | None]:
    """Return up to ``count`` features of a device with many features.

    The second value names rows that were left out, if any.
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
