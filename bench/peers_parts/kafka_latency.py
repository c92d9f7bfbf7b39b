"""How long it takes from a page's exit in the topic to its feature in the other, at a rate.

Events are not put in order here (``outOfOrder`` 0) and no producer lingers, so that an exit
makes its feature at once and nobody waits for anything but the work. The time counts from
when an exit was due, so a producer that falls behind does not hide it; a first share of the
exits is warm-up.
"""

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from vm_parts.measuring import quantile

from peers_parts.contenders import Contender
from peers_parts.environments import Environment
from peers_parts.kafka_job import PARTITIONS, KafkaJob
from peers_parts.kafka_running import command_of
from peers_parts.kafka_topics import BenchTopics, RawRecord, send
from peers_parts.running import surroundings_of_a_run
from peers_parts.shop_job import Visitor, Watermarks, decode_event

_START_S: Final = 120.0  # from the process to the first feature
_QUIET_S: Final = 15.0  # without a feature: nothing more comes
_END_S: Final = 20.0
_WARM_UP: Final = 0.2
_PROBE: Final = "probe"

type _View = tuple[str, str]  # device, page instance


class Latency(NamedTuple):
    """Of one contender."""

    features: int
    missing: int
    """Exits whose feature never came."""
    p50_ms: float
    p99_ms: float
    max_ms: float


def exits_of(records: Sequence[RawRecord]) -> dict[_View, int]:
    """Return which event makes each feature that an exit makes.

    Args:
        records: Of the topic, in its order.

    Returns:
        The event's index by device and page instance.
    """
    watermarks, visitors = Watermarks(PARTITIONS), dict[str, Visitor]()
    order_ms, Visitor.order_ms = Visitor.order_ms, 0
    found = {}
    try:
        for number, record in enumerate(records):
            event = decode_event(record.line)
            visitor = visitors.setdefault(event.device_id, Visitor())
            for page in visitor.accept(event, watermarks.of(event)):
                if page.page_id == "item" and page.end[1] == "exit":
                    found[event.device_id, page.instance] = number
    finally:
        Visitor.order_ms = order_ms
    return found


def measure_latency(
    contender: Contender,
    environment: Environment,
    topics: BenchTopics,
    records: Sequence[RawRecord],
    rate: float,
) -> Latency:
    """Run a contender beside a paced producer; blocks.

    Args:
        contender: Which.
        environment: Where it is installed.
        topics: Of the bench.
        records: Records to produce.
        rate: Events a second.
    """
    folder = tempfile.mkdtemp(prefix="walle-bench-")
    run = Path(folder).name
    source, out = topics.make(f"{run}-raw"), topics.make(run)
    job = KafkaJob(topics.broker, source, out, out, folder, 0, 0)
    log = Path(folder) / "log"
    watch = _Watch(topics, out)
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command_of(contender, environment, job),
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=surroundings_of_a_run(),
        )
    try:
        producer = topics.producer(0)
        for each in _probe_of(records):
            send(producer, source, each)
        producer.flush()
        if not watch.wait_for({(_PROBE, _PROBE)}, _START_S, process):
            text = log.read_text(errors="replace")[-4_000:]
            sys.exit(f"{contender.title} made no feature within {_START_S:g} s\n{text}")
        began_s = time.monotonic()
        for number, each in enumerate(records):
            left_s = began_s + number / rate - time.monotonic()
            if left_s > 0:
                time.sleep(left_s)
            send(producer, source, each)
        producer.flush()
        exits = exits_of(records)
        watch.wait_for(set(exits), _QUIET_S, process)
        producer.close()
        return _latency(exits, watch.seen_s, began_s, rate)
    finally:
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        watch.close()
        topics.delete(run)
        shutil.rmtree(folder, ignore_errors=True)


def _latency(
    exits: dict[_View, int], seen_s: dict[_View, float], began_s: float, rate: float
) -> Latency:
    ordered = sorted(exits.items(), key=lambda item: item[1])
    ordered = ordered[int(_WARM_UP * len(ordered)) :]
    waits_ms = [
        (seen_s[view] - began_s - number / rate) * 1000
        for view, number in ordered
        if view in seen_s
    ]
    if not waits_ms:
        return Latency(0, len(ordered), 0.0, 0.0, 0.0)
    p50, p99 = (round(quantile(waits_ms, share), 2) for share in (0.5, 0.99))
    return Latency(len(waits_ms), len(ordered) - len(waits_ms), p50, p99, round(max(waits_ms), 2))


def _probe_of(records: Sequence[RawRecord]) -> list[RawRecord]:
    """Return a view of an item by a device of its own: who makes its feature is ready."""
    first_ms = records[0].time_ms
    entered = next(
        event
        for event in (decode_event(each.line) for each in records)
        if event.kind == "page_enter" and event.page_id == "item"
    )
    probes = []
    for kind in ("page_enter", "page_exit"):
        event = msgspec.structs.replace(
            entered,
            device_id=_PROBE,
            page_instance=_PROBE,
            kind=kind,
            id=kind,
            uid=f"{_PROBE}-{kind}",
            event_time_ms=first_ms,
            ingest_time_ms=first_ms,
        )
        probes.append(RawRecord(_PROBE, first_ms, msgspec.json.encode(event)))
    return probes


class _Watch:
    """Notes when features of exits become readable, in a thread of its own."""

    def __init__(self, topics: BenchTopics, out: str) -> None:
        self.seen_s: dict[_View, float] = {}
        self._consumer: Any = topics.consumer(out)
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        decode = msgspec.json.Decoder(dict[str, Any]).decode
        while not self._is_closed:
            found = self._consumer.poll(50)
            now_s = time.monotonic()
            with self._changed:
                for records in found.values():
                    for record in records:
                        made = decode(record.value)
                        feature = made.get("feature", made)
                        if feature["cause"] == "exit":
                            view = (feature["device_id"], feature["page_instance"])
                            self.seen_s.setdefault(view, now_s)
                if found:
                    self._changed.notify_all()

    def wait_for(self, views: set[_View], quiet_s: float, process: Any) -> bool:
        """Wait for features until none came for some time, or the process ended."""
        with self._changed:
            while not views <= self.seen_s.keys() and process.poll() is None:
                if not self._changed.wait(quiet_s):
                    return False
            return views <= self.seen_s.keys()

    def close(self) -> None:
        """End the thread."""
        self._is_closed = True
        self._thread.join()
        self._consumer.close()
