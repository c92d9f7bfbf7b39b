"""Write rows into a topic: FILE TOPIC PER_S; 0 rows a second is as fast as it goes."""

import json
import sys
import time
from pathlib import Path

from broker import CLIENT

from kafka import KafkaProducer


def main() -> None:
    """Write them, whatever happens to the broker; ends when all are acknowledged."""
    file, topic, per_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
    producer = KafkaProducer(
        **CLIENT, acks="all", enable_idempotence=True, linger_ms=5, delivery_timeout_ms=2**31 - 1
    )
    failures: list[BaseException] = []
    began_s = time.monotonic()
    with Path(file).open() as lines:
        for number, line in enumerate(lines):
            if per_s:
                time.sleep(max(0.0, began_s + number / per_s - time.monotonic()))
            user, time_ms, row = json.loads(line)
            value = json.dumps(row).encode()
            sent = producer.send(topic, value, key=user.encode(), timestamp_ms=time_ms)
            sent.add_errback(failures.append)
            if failures:
                break
    if not failures:
        producer.flush(600)
    producer.close(timeout=1)
    if failures:
        raise failures[0]


if __name__ == "__main__":
    main()
