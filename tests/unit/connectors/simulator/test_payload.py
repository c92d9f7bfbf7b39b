import json

import zstandard

from walle_connectors.simulator import SimulatorModel
from walle_connectors.simulator.payload import CHANGING_SHARE
from walle_connectors.simulator.timeline import Timeline

BATCH = 1_000


def payloads():
    """Yield each payload with that of the same device's event before, as members of JSON."""
    before = {}
    timeline = Timeline(SimulatorModel(devices=100, sessions=2))
    for window in range(timeline.windows):
        for line in timeline.lines(window):
            event = json.loads(line.data)
            made = {name: json.dumps(value) for name, value in event["payload"].items()}
            old, before[event["device_id"]] = before.get(event["device_id"]), made
            if old is not None:
                yield made, old


def test_most_of_the_shops_payload_changes_and_does_not_compress():
    found = list(payloads())
    size = {name: sum(len(made[name]) for made, _ in found) for name in found[0][0]}
    changing = {
        name: sum(len(made[name]) for made, old in found if made[name] != old[name])
        for name in size
    }
    assert sum(changing.values()) / sum(size.values()) > CHANGING_SHARE
    # random bytes are half of a payload, and base64 of them takes three quarters at least
    assert changing["trace"] / size["trace"] > 0.98
    compress = zstandard.ZstdCompressor(level=1).compress
    lines = [json.dumps(made).encode() for made, _ in found]
    packed = [b"\n".join(lines[at : at + BATCH]) for at in range(0, len(lines), BATCH)]
    assert sum(len(compress(each)) for each in packed) > size["trace"] * 0.75
