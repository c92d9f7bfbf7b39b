"""The cloud-only baseline beside ``bench/ipv.py``: its sessions and its task."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from walle_connectors.kafka.pipeline import load_kafka
from walle_connectors.simulator import SimulatorModel
from walle_connectors.simulator.timeline import Timeline
from walle_stream.app.resources import shipped_configs
from walle_stream.errors import EnvelopeError, ScriptError, SpecFileError
from walle_stream.events import Event
from walle_stream.wire.record import decode_record

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
from ipv_parts.cloud_task import CloudTask
from ipv_parts.sessions import Sessions, baseline_of

_spec = importlib.util.spec_from_file_location(
    "naive_shop", Path(__file__).parents[1] / "integration/naive_shop.py"
)
naive_shop = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(naive_shop)

FILE = shipped_configs() / "ipv-kafka.yaml"


@pytest.fixture(scope="module")
def pipeline():
    return baseline_of(load_kafka(FILE))


@pytest.fixture
def sessions(pipeline):
    return Sessions(pipeline, {}, {})


def test_of_ordered_events_the_features_are_those_of_the_naive_truth(sessions):
    shop = SimulatorModel(
        devices=40,
        sessions=3,
        late_events=0.0,
        lost_order_events=0.0,
        duplicates=0.05,
        missing_exits=0.0,
    )
    timeline = Timeline(shop)
    lines = [line.data for window in range(timeline.windows) for line in timeline.lines(window)]
    found: dict[str, list[object]] = {}
    for line in lines:
        event = msgspec.json.decode(line, type=Event)
        key = event.device_id.encode()
        for record in sessions.accept(3, key, line, event.ingest_time_ms):
            envelope, feature = decode_record(*record)
            made = found.setdefault(envelope.device_id, [])
            made.append(msgspec.json.decode(feature))
            assert (envelope.partition, envelope.sequence_number) == (3, len(made))
            assert len(envelope.encoding) == 128
    assert found == naive_shop.recompute(lines, 1)
    assert sum(map(len, found.values())) > 300
    assert sessions._visits == {}


def test_state_is_in_the_tables_alone(pipeline):
    visits, profiles, made = {}, {}, []
    for number in range(1, 4):
        for kind, at_ms in (("page_enter", 1), ("page_exit", 2)):
            event = {
                "kind": kind,
                "page_id": "item",
                "page_instance": str(number),
                "event_time_ms": number * 10 + at_ms,
                "contents": {"item": "i", "entry": "feed", "price": 1.0},
            }
            # every event in a process of its own
            again = Sessions(pipeline, visits, profiles)
            made += again.accept(0, b"d", msgspec.json.encode(event), number * 10)
    features = [msgspec.json.decode(value) for _, value, _ in made]
    assert [each["item_view_count"] for each in features] == [1, 2, 3]
    assert [decode_record(*each)[0].sequence_number for each in made] == [1, 2, 3]


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"d", b"{"), (b"d", None), (None, b'{"kind":"click","page_id":"a","event_time_ms":1}')],
)
def test_what_is_no_event_is_refused(sessions, key, value):
    with pytest.raises(EnvelopeError):
        sessions.accept(0, key, value, 1)


def test_a_script_that_cannot_be_loaded_is_named(pipeline, tmp_path):
    script = tmp_path / "bad.py"
    script.write_text("import nothing_of_this_name")
    spec = pipeline.task.spec.model_copy(update={"script": script})
    with pytest.raises(ScriptError, match=r"bad\.py: cannot be loaded by the cloud side"):
        CloudTask(pipeline.task.model_copy(update={"spec": spec}))


def test_the_baseline_needs_raw_events():
    with pytest.raises(SpecFileError, match="reads raw events from a broker"):
        baseline_of(load_kafka(FILE, ["spec.source={connector: simulator}"]))


def test_the_baseline_does_tasks_on_exits_alone():
    loaded = load_kafka(FILE)
    task = loaded.tasks[0]
    trigger = task.spec.triggers[0].model_copy(update={"sequence": ("click",)})
    spec = task.spec.model_copy(update={"triggers": (trigger,)})
    other = replace(loaded, tasks=(task.model_copy(update={"spec": spec}),))
    with pytest.raises(SpecFileError, match="triggered by page_exit alone, and found 0"):
        baseline_of(other)


def test_brokers_topics_and_pages_are_those_of_the_yaml(pipeline):
    assert (pipeline.features_topic, pipeline.events_topic) == ("shop-features", "shop-events")
    assert pipeline.policy.pages == {"item"}
