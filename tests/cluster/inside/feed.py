"""Write rows into a topic: FILE TOPIC PER_S [until-stopped]; 0 rows a second is as fast as it goes.

Until it is stopped, by SIGTERM, it begins again at the end of the file, with devices of other names.
"""

import json
import signal
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from threading import Event as Flag

from broker import CLIENT

from kafka import KafkaProducer


def main() -> None:
    """Write them, whatever happens to the broker; ends when all are acknowledged."""
    file, topic, per_s, *endless = sys.argv[1:]
    pause_s = 1.0 / float(per_s) if float(per_s) else 0.0
    stop = Flag()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    producer = KafkaProducer(
        **CLIENT, acks="all", enable_idempotence=True, linger_ms=5, delivery_timeout_ms=2**31 - 1
    )
    failures: list[BaseException] = []
    began_s = time.monotonic()
    for number, (user, time_ms, row) in enumerate(rows(Path(file), is_endless=bool(endless))):
        if pause_s:
            stop.wait(max(0.0, began_s + number * pause_s - time.monotonic()))
        if stop.is_set():
            break
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


def rows(file: Path, *, is_endless: bool) -> Iterator[tuple[str, int, dict[str, object]]]:
    """Yield device, time and row."""
    for turn in count():
        with file.open() as lines:
            for line in lines:
                user, time_ms, row = json.loads(line)
                name = f"{user}.{turn}" if turn else user
                yield name, time_ms, {**row, "user_id": name}
        if not is_endless:
            return


if __name__ == "__main__":
    main()
