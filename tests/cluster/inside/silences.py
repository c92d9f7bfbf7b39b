"""How long each partition of a topic was silent at most: TOPIC SINCE UNTIL, in seconds of Unix time."""

import json
import sys
from collections import defaultdict
from itertools import pairwise

from broker import CLIENT

from kafka import KafkaConsumer, TopicPartition


def main() -> None:
    """Print an object of seconds by partition; a partition without records was silent all the time."""
    topic, since_s, until_s = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
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
    found = {}
    for place in places:
        seen = [each for each in times[place.partition] if since_s < each < until_s]
        marks = [since_s, *seen, until_s]
        found[place.partition] = max(after - before for before, after in pairwise(marks))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
