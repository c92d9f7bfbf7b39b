"""Write rows of devices: TOPIC DEVICES BYTES PER_S. First one of each device that asks for state.

Then rows of others, until it is stopped by SIGTERM; every row has the time at which it is sent.
"""

import json
import signal
import sys
import time
from itertools import count
from threading import Event as Flag
from typing import Any, Final

from broker import CLIENT

from kafka import KafkaProducer

_LIVE: Final = 200  # devices


def main() -> None:
    """Write them; ends when all are acknowledged. Says ``filled`` when the first part is."""
    topic, devices, size, per_s = sys.argv[1], *map(int, sys.argv[2:])
    stop = Flag()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    producer = KafkaProducer(**CLIENT, acks="all", enable_idempotence=True, linger_ms=2)
    for number in range(devices):
        send(producer, topic, f"full-{number}", number, size)
    producer.flush(600)
    print("filled", flush=True)
    began_s = time.monotonic()
    for number in count():
        stop.wait(max(0.0, began_s + number / per_s - time.monotonic()))
        if stop.is_set():
            break
        send(producer, topic, f"live-{number % _LIVE}", number, 0)
    producer.flush(600)
    producer.close(timeout=1)


def send(producer: Any, topic: str, user: str, number: int, size: int) -> None:
    """Hand a row over."""
    now_ms = int(time.time() * 1000)
    row = {"user": user, "t": now_ms, "n": str(number), "pad": size, "sent": now_ms}
    producer.send(topic, json.dumps(row).encode(), key=user.encode())


if __name__ == "__main__":
    main()
