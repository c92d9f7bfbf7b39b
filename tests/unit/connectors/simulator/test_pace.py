from walle_connectors.simulator import SimulatorModel, pace
from walle_connectors.simulator.reader import SimulatorSource


class Clock:
    """Time that passes when somebody waits."""

    def __init__(self, monkeypatch):
        self.now_ms = 0.0
        monkeypatch.setattr(pace, "monotonic_ms", lambda: self.now_ms)
        monkeypatch.setattr(pace, "Flag", lambda: self)

    def wait(self, seconds):
        self.now_ms += seconds * 1000.0


def test_so_many_events_a_second_and_no_more(monkeypatch):
    clock = Clock(monkeypatch)
    shop = SimulatorModel(devices=20, sessions=1, rate=500.0)
    reader = SimulatorSource(shop).open({}, 4, 256)
    given = []
    while not reader.is_done and len(given) < 1_000:
        given += [event for batch in reader.read() for event in batch.events]
        assert len(given) <= clock.now_ms * 0.5 + 50  # what a tenth of a second makes up for
    assert len(given) >= clock.now_ms * 0.5 * 0.98 - 50
    assert len(given) > 300


def test_the_rate_changes_no_event_and_is_no_other_shop(monkeypatch):
    Clock(monkeypatch)
    found = []
    for rate in (None, 10_000.0):
        source = SimulatorSource(SimulatorModel(devices=10, sessions=1, rate=rate))
        source.check_fingerprint(SimulatorSource(SimulatorModel(devices=10)).fingerprint)
        reader, lanes = source.open({}, 2, 100), {0: [], 1: []}
        while not reader.is_done:
            for batch in reader.read():
                lanes[batch.partition] += batch.events
        found.append(lanes)
    assert found[0] == found[1]
