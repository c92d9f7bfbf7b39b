"""How long each partition of a topic was silent at most: TOPIC WINDOWS, in seconds of Unix time."""

import json
import sys
from bisect import bisect_left, bisect_right
from collections import defaultdict
from itertools import pairwise

from broker import CLIENT

from kafka import KafkaConsumer, TopicPartition


def main() -> None:
    """Print an object of seconds by partition for each [since, until]; one without records was silent throughout."""
    topic, windows = sys.argv[1], json.loads(sys.argv[2])
    consumer = KafkaConsumer(**CLIENT, group_id=None, enable_auto_commit=False)
    places = [TopicPartition(topic, each) for each in consumer.partitions_for_topic(topic) or ()]
    consumer.assign(places)
    consumer.seek_to_beginning(*places)
    ends = consumer.end_offsets(places)
    times: defaultdict[int, list[float]] = defaultdict(list)
    while any(consumer.position(place) < ends[place] for place in places):
        for place, records in consumer.poll(timeout_ms=200).items():
            times[place.partition] += [record.timestamp / 1000.0 for record in records]
    consumer.close()
    numbers = [place.partition for place in places]
    print(
        json.dumps(
            [{each: longest(times[each], *window) for each in numbers} for window in windows]
        )
    )


def longest(times: list[float], since_s: float, until_s: float) -> float:
    """Return the longest time without a record; ``times`` are in order."""
    seen = times[bisect_right(times, since_s) : bisect_left(times, until_s)]
    return max(after - before for before, after in pairwise([since_s, *seen, until_s]))


if __name__ == "__main__":
    main()
