import pytest

from walle_deploy.simulation.kinds import DeviceKinds
from walle_stream.errors import SpecFileError
from walle_stream.spec.single import load_single

TEXT = """\
apiVersion: walle/v1
kind: DeviceKinds
metadata: {name: fleet}
spec:
  timeLimit: 30s
  tolerances: {failureRate: 0.01}
  sequence: {pageTimeout: 1m}
  kinds:
    - {name: old phone, performance: low, memory: 64MiB, os: android, events: old.jsonl}
    - {name: tablet, speed: 1.5, config: {os: ios}}
"""


def load(tmp_path, text):
    file = tmp_path / "kinds.yaml"
    file.write_text(text)
    return load_single(file, DeviceKinds).spec


def test_kinds_have_their_own_speed_memory_config_and_events(tmp_path):
    spec = load(tmp_path, TEXT)
    phone, tablet = spec.kinds
    assert (phone.scale, phone.memory, phone.config) == (0.25, 64 * 2**20, {})
    assert phone.events == tmp_path / "old.jsonl"
    assert (tablet.scale, tablet.events, tablet.config) == (1.5, None, {"os": "ios"})
    assert (spec.time_limit, spec.tolerances.failure_rate) == (30_000, 0.01)
    assert spec.sequence.page_timeout_ms == 60_000


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("low", "lowest", "kinds.yaml:9:38: spec.kinds[0].performance"),
        ("tablet", "old phone", "the name 'old phone' stands here twice"),
        ("memory: 64MiB", "memory: 1MiB", "spec.kinds[0].memory"),
        ("speed: 1.5", "speed: 0", "spec.kinds[1].speed"),
        ("config", "konfig", "unknown key 'konfig', did you mean 'config'?"),
        ("failureRate: 0.01", "failureRate: 1%", "spec.tolerances.failureRate"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, old, new, said):
    with pytest.raises(SpecFileError) as error:
        load(tmp_path, TEXT.replace(old, new))
    assert said in str(error.value)
