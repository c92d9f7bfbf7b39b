"""A shop that never closes: the simulator's visits again and again, later each time.

Its devices' visits are drawn once, kept as lines without the opaque payload (no task
reads it), and decoded anew for every round, with fresh times, page instances and
occurrences: what a round leaves behind in the pipeline is not what the next one
needs. Items come again, so that the state of the shop's own script, which counts the
views of every item, stops growing with the first round: what grows after that is
ours. ``is_fresh`` draws every visit anew instead: then the script's state grows, too.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Final

import msgspec

from walle_connectors.simulator.model import SimulatorModel
from walle_connectors.simulator.timeline import WINDOW_MS, Timeline
from walle_stream.events import Event
from walle_stream.ports import EventBatch, SourceBatch, SourceCounts, Unread
from walle_stream.spec.strict import Strict
from walle_stream.types import Placing

_EVENT_BYTES: Final = 500


class Shop(msgspec.Struct, frozen=True):
    """Which shop, and how much of it."""

    events: int
    devices: int = 1_000
    seed: int = 2022
    is_fresh: bool = False


def endless(shop: Shop) -> Iterator[Event]:
    """Yield the shop's events in the order of arrival, for ever.

    Args:
        shop: Which; ``events`` is not looked at.
    """
    decode = msgspec.json.Decoder(Event).decode
    sessions = 1_000_000 if shop.is_fresh else 1
    timeline = Timeline(
        SimulatorModel(devices=shop.devices, seed=shop.seed, sessions=sessions, payload_bytes=0)
    )
    if shop.is_fresh:
        for window in range(timeline.windows):
            for line in timeline.lines(window):
                yield decode(line.data)
        return
    lines = [line.data for window in range(timeline.windows) for line in timeline.lines(window)]
    for number in count():
        later_ms = number * timeline.windows * WINDOW_MS
        for line in lines:
            event = decode(line)
            event.event_time_ms += later_ms
            event.ingest_time_ms += later_ms
            event.page_instance = f"{number}.{event.page_instance}"
            event.uid = f"{number}.{event.uid}"
            yield event


class EndlessReader:
    """Gives the shop's events, of one partition. One thread."""

    def __init__(self, shop: Shop, batch_events: int, look: Callable[[int], None]) -> None:
        """Begin.

        Args:
            shop: Which.
            batch_events: Most events in a batch.
            look: Called before each read with how many events were given.
        """
        self.batch_events = batch_events
        self.keeps_raw = False
        self._shop = shop
        self._events = endless(shop)
        self._given = 0
        self._look = look

    def read(self) -> Sequence[SourceBatch]:
        """Return the next events."""
        self._look(self._given)
        events = list(islice(self._events, min(self.batch_events, self._shop.events - self._given)))
        if not events:
            return ()
        self._given += len(events)
        return (
            SourceBatch(
                partition=0,
                events=EventBatch(events),
                offset=self._given.to_bytes(8),
                counts=SourceCounts(len(events), len(events)),
                dead_letters=[],
                size_bytes=len(events) * _EVENT_BYTES,
            ),
        )

    def drain(self) -> Sequence[SourceBatch]:
        """Return nothing: nothing is held back."""
        return ()

    @property
    def is_done(self) -> bool:
        """Whether all were given."""
        return self._given >= self._shop.events

    @property
    def unread(self) -> Unread:
        """Nothing that anybody knows."""
        return Unread()

    @property
    def progress(self) -> float:
        """Share of the events that were given, 0-1."""
        return self._given / self._shop.events

    def close(self) -> None:
        """Forget the visits."""
        self._events = iter(())


class EndlessModel(Strict):
    """No keys: the shop is set in the process."""

    connector: str = "endless"


class EndlessSource:
    """The shop as a source. It is read once: no offset is gone back to."""

    fingerprint: Mapping[str, str | int] = {"endless": 1}
    reads_apart = False

    def __init__(self, shop: Shop, look: Callable[[int], None]) -> None:
        """Keep both."""
        self._shop, self._look = shop, look

    def check_fingerprint(self, stored: Mapping[str, str | int]) -> None:
        """Take any."""

    def check_placing(self, partition_count: int, placing: Placing) -> None:
        """Take any."""

    def open(
        self, offsets: Mapping[int, bytes], partition_count: int, batch_events: int, *_: object
    ) -> EndlessReader:
        """Open at the beginning.

        Raises:
            ValueError: Not a new data directory of one partition.
        """
        if offsets or partition_count != 1:
            raise ValueError("the endless shop needs a new data directory and 1 partition")
        return EndlessReader(self._shop, batch_events, self._look)


class EndlessConnector:
    """What the YAML names; its shop and ``look`` are set before it is opened."""

    name: Final = "endless"
    model: Final = EndlessModel

    def __init__(self) -> None:
        """Without events."""
        self.shop = Shop(0)
        self.look: Callable[[int], None] = lambda _given: None

    def open(self, _model: EndlessModel) -> EndlessSource:
        """Make the source."""
        return EndlessSource(self.shop, self.look)


CONNECTOR: Final = EndlessConnector()
"""What the YAML names."""
