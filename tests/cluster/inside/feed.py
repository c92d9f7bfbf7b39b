"""Make the topics, when the broker is ready, and write rows into the first: CA ROWS PARTITIONS PER_S TOPIC..."""

import json
import sys
import time
from itertools import count
from pathlib import Path

from kafka import KafkaProducer
from walle_stream.testing.broker import make_topic
from walle_stream.testing.broker.ready import round_trip

BROKER = "kafka:9093"


def main() -> None:
    """Write; 0 rows a second is as fast as it goes."""
    ca, rows, partitions, per_s, *topics = sys.argv[1:]
    client = {"bootstrap_servers": [BROKER], "security_protocol": "SSL", "ssl_cafile": ca}
    round_trip(client)
    for topic in topics:
        # rows have times of years ago
        make_topic(client, topic, partitions=int(partitions), settings={"retention.ms": "-1"})
    producer = KafkaProducer(
        **client, acks="all", enable_idempotence=True, linger_ms=5, delivery_timeout_ms=2**31 - 1
    )
    failures: list[BaseException] = []
    began_s = time.monotonic()
    with Path(rows).open() as lines:
        for number, line in zip(count(), lines, strict=False):
            if float(per_s):
                time.sleep(max(0.0, began_s + number / float(per_s) - time.monotonic()))
            user, time_ms, row = json.loads(line)
            producer.send(
                topics[0],
                json.dumps(row).encode(),
                key=user.encode(),
                timestamp_ms=time_ms,
            ).add_errback(failures.append)
            if failures:
                raise failures[0]
    producer.flush(120)
    producer.close()
    if failures:
        raise failures[0]


if __name__ == "__main__":
    main()
