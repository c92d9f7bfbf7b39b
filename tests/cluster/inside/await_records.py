"""Wait until every partition of a topic has a record of later than a moment: TOPIC SINCE SECONDS COUNT.

And until all together have COUNT.
"""

import sys
import time

from broker import CLIENT

from kafka import KafkaConsumer, TopicPartition


def main() -> int:
    """Return 0 when they have, 1 when it does not come to that; SINCE is in seconds of Unix time."""
    topic, since_s, seconds, count = sys.argv[1], *map(float, sys.argv[2:])
    consumer = KafkaConsumer(**CLIENT, group_id=None, enable_auto_commit=False)
    places = [TopicPartition(topic, each) for each in consumer.partitions_for_topic(topic) or ()]
    missing = set(places)
    deadline_s = time.monotonic() + seconds
    while missing and time.monotonic() < deadline_s:
        found = consumer.offsets_for_times(dict.fromkeys(missing, int(since_s * 1000)))
        missing = {place for place in missing if found.get(place) is None}
        if not missing and sum(consumer.end_offsets(places).values()) < count:
            missing = set(places)
        time.sleep(0.1)
    consumer.close()
    silent = sorted(place.partition for place in missing)
    if silent:
        print(f"no record since {since_s:.1f} in partitions {silent}")
    return int(bool(silent))


if __name__ == "__main__":
    raise SystemExit(main())
