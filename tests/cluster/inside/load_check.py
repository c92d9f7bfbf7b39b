"""Count what came of a load: TOPIC FEATURES WINDOWS, in seconds of Unix time."""

import json
import sys
from collections import defaultdict
from collections.abc import Sequence

from broker import partitions, records
from silences import longest

from walle_stream.wire.record import decode_record


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
    """Return the longest silence of a partition, and how long rows of the window took."""
    took = sorted(ms for sent, ms in late if since <= sent < until)
    silence = max(longest(each, since, until) for each in times.values())
    share = [took[min(len(took) - 1, int(len(took) * at))] if took else 0.0 for at in (0.5, 0.99)]
    return {
        "silence_s": round(silence, 2),
        "rows": len(took),
        "p50_ms": share[0],
        "p99_ms": share[1],
    }


if __name__ == "__main__":
    raise SystemExit(main())
