"""Conformance suite for sinks of features: each feature arrives once, despite repetitions.

Subclass ``SinkSuite`` in a test file and implement ``open`` and ``read``; pytest then runs every
test below.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from random import Random

from walle_stream.errors import SinkError
from walle_stream.ports import FeatureSink, MergedFeature

_ODD = ("düse", "a'b\"c", "\u2028", "x" * 200)
_INCARNATIONS = ("ab" * 8, "cd" * 8)
_ATTEMPTS = 20


def _random(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - repeatable


def merged_features(count: int, seed: int = 1, gap: int = 3) -> list[MergedFeature]:
    """Return features of one lane of some devices, with gaps of less than ``gap`` numbers."""
    rng, number, last = _random(seed), 0, dict[tuple[str, str], int]()
    made = []
    for index in range(count):
        number += rng.randrange(1, gap + 1)
        of = rng.choice(_INCARNATIONS), rng.choice([*_ODD, *(f"d-{n}" for n in range(20))])
        last[of] = last.get(of, 0) + 1
        value = b'{"n":%d,"text":"\\u0000 \xc3\xa9 %s"}' % (index, b"y" * rng.randrange(200))
        encoding = rng.randbytes(rng.choice((0, 16)))
        time_ms = rng.choice((-1, 0, 1_650_000_000_000, 2**62))
        made.append(
            MergedFeature(number, *of, f"t-{index % 3}", "v 1", last[of], value, encoding, time_ms)
        )
    return made


class SinkSuite(ABC):
    """Tests that every sink must pass; pytest collects the subclasses."""

    def setup_method(self) -> None:
        """Start without a sink."""
        self._opened: list[FeatureSink] = []

    def teardown_method(self) -> None:
        """Close all sinks, even those of killed processes."""
        for sink in self._opened:
            sink.close()

    def another(self) -> FeatureSink:
        """Open the sink again; the test's end closes it."""
        self._opened.append(self.open())
        return self._opened[-1]

    @abstractmethod
    def open(self) -> FeatureSink:
        """Open the sink of a test; each call acts as another process."""

    @abstractmethod
    def read(self) -> Iterable[MergedFeature]:
        """Return the features that a reader finds, with any numbers and in any order."""

    def expect(self, *lanes: Sequence[MergedFeature]) -> None:
        """Compare the features in the sink with the merged features."""
        expected = sorted(_content(each) for lane in lanes for each in lane)
        found = sorted(_content(each) for each in self.read())
        assert found == expected

    def test_each_feature_of_each_lane_is_there_once(self) -> None:
        """Lanes grow side by side and are written meanwhile."""
        rng, sink = _random(2), self.another()
        lanes = {"one": merged_features(2_500), "two": merged_features(700, 2)}
        # two lanes have different devices
        lanes["two"] = [_renamed(each) for each in lanes["two"]]
        places, behind = dict.fromkeys(lanes, 0), dict.fromkeys(lanes, 0)
        for share in (0.01, 0.3, 0.31, 1.0):
            for name in sorted(lanes, key=lambda _: rng.random()):
                there = lanes[name][: int(len(lanes[name]) * share)]
                while behind[name] <= there[-1].number:
                    places[name], behind[name] = _write(sink, name, there, places[name])
        sink.close()
        sink.close()
        self.expect(*lanes.values())

    def test_what_comes_again_is_itself(self) -> None:
        """After a crash, the place may be an older one, and there may be more features."""
        features, rng, place = merged_features(1_500), _random(3), 0
        places = [0]
        for _ in range(12):
            sink, there = self.another(), features[: rng.randrange(100, len(features))]
            place = rng.choice(places)
            for _ in range(rng.randrange(1, 4)):
                if place > there[-1].number:
                    break
                place, _ = _write(sink, "one", there, place)
                places.append(place)
            if rng.random() < 0.5:  # noqa: PLR2004 - otherwise killed
                sink.close()
        _write_all(self.another(), "one", features, min(places))
        self.expect(features)

    def test_who_lost_a_lane_takes_nothing_away(self) -> None:
        """A process that was paused continues beside the next owner with its old features."""
        features = merged_features(900)
        late, owner = self.another(), self.another()
        _write(late, "one", features[:300], 0)
        _write_all(owner, "one", features, 0)
        with suppress(SinkError):  # the write may be refused
            late.write("one", iter(features[:400]))
        self.expect(features)


def _write(
    sink: FeatureSink, lane: str, features: Sequence[MergedFeature], place: int
) -> tuple[int, int]:
    for attempt in range(_ATTEMPTS):
        try:
            written = sink.write(lane, (each for each in features if each.number >= place))
            break
        except SinkError:  # a part of the sink may still be starting
            if attempt == _ATTEMPTS - 1:
                raise
    assert place <= written.place <= written.behind
    assert written.behind > place
    return written.place, written.behind


def _write_all(sink: FeatureSink, lane: str, features: Sequence[MergedFeature], place: int) -> None:
    behind = 0
    while behind <= features[-1].number:
        place, behind = _write(sink, lane, features, place)
    sink.close()


def _renamed(feature: MergedFeature) -> MergedFeature:
    return MergedFeature(
        feature.number,
        feature.incarnation,
        f"other-{feature.device_id}",
        feature.task,
        feature.task_version,
        feature.sequence_number,
        feature.feature,
        feature.encoding,
        feature.event_time_ms,
    )


def _content(feature: MergedFeature) -> tuple[object, ...]:
    return (
        feature.device_id,
        feature.incarnation,
        feature.sequence_number,
        feature.task,
        feature.task_version,
        feature.feature,
        feature.encoding,
        feature.event_time_ms,
    )
