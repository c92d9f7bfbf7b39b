"""Count what came of a load: TOPIC FEATURES WINDOWS, in seconds of Unix time."""

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from broker import partitions, records
from silences import longest

from walle_stream.wire.record import decode_record

_SLICE_S: Final = 5.0


def main() -> int:
    """Print an object: of devices the rows that no feature, or another one, came of; of windows the times."""
    topic, features, windows = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    rows: defaultdict[str, int] = defaultdict(int)
    for record in records(topic):
        rows[record.key.decode()] += 1
    counts: defaultdict[str, dict[int, int]] = defaultdict(dict)
    times: dict[int, list[float]] = {number: [] for number in partitions(features)}
    late: list[tuple[float, float]] = []
    for record in records(features):
        envelope, value = decode_record(record.key, record.value, record.headers)
        feature = json.loads(value)
        times[record.partition].append(record.timestamp / 1000.0)
        known = counts[envelope.device_id]
        if envelope.sequence_number not in known:
            late.append((feature["sent"] / 1000.0, record.timestamp - feature["sent"]))
        elif known[envelope.sequence_number] != feature["count"]:
            known[-1] = feature["count"]  # another feature of the same number
        known.setdefault(envelope.sequence_number, feature["count"])
    wrong = [
        device
        for device in rows.keys() | counts.keys()
        if [count for _, count in sorted(counts[device].items())] != [*range(1, rows[device] + 1)]
    ]
    told = [figures(times, late, since, until) for since, until in windows]
    print(json.dumps({"features": len(late), "wrong": sorted(wrong)[:5], "windows": told}))
    return int(bool(wrong))


def figures(
    times: dict[int, list[float]], late: Sequence[tuple[float, float]], since: float, until: float
) -> dict[str, float]:
    """Return the longest silence of a partition, and how long rows of the window took.

    The usual p99 is the median of slices of 5 s each.
    """
    took = [(sent, ms) for sent, ms in late if since <= sent < until]
    slices: defaultdict[int, list[float]] = defaultdict(list)
    for sent, ms in took:
        slices[int((sent - since) / _SLICE_S)].append(ms)
    return {
        "silence_s": round(max(longest(each, since, until) for each in times.values()), 2),
        "rows": len(took),
        "p50_ms": quantile([ms for _, ms in took], 0.5),
        "p99_ms": quantile([ms for _, ms in took], 0.99),
        # one stall of the machine's disk is some hundred rows: more than their hundredth
        "usual_p99_ms": quantile([quantile(each, 0.99) for each in slices.values()], 0.5),
    }


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of others is below; 0 of none."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else 0.0


if __name__ == "__main__":
    raise SystemExit(main())
