"""How long each partition of a topic was silent at most: TOPIC WINDOWS, in seconds of Unix time."""

import json
import sys
from bisect import bisect_left, bisect_right
from itertools import pairwise

from broker import partitions, records


def main() -> None:
    """Print an object of seconds by partition for each [since, until]; one without records was silent throughout."""
    topic, windows = sys.argv[1], json.loads(sys.argv[2])
    times: dict[int, list[float]] = {number: [] for number in partitions(topic)}
    for record in records(topic):
        times[record.partition].append(record.timestamp / 1000.0)
    print(
        json.dumps([{each: longest(times[each], *window) for each in times} for window in windows])
    )


def longest(times: list[float], since_s: float, until_s: float) -> float:
    """Return the longest time without a record; ``times`` are in order."""
    seen = times[bisect_right(times, since_s) : bisect_left(times, until_s)]
    return max(after - before for before, after in pairwise([since_s, *seen, until_s]))


if __name__ == "__main__":
    main()
