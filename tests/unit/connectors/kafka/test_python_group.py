from types import SimpleNamespace

from kafka import TopicPartition
from walle_connectors.kafka.source.group import Told
from walle_connectors.kafka.source.python_group import PythonGroup


def test_metadata_have_the_end_up_to_which_the_other_library_reads():
    committed = []
    consumer = SimpleNamespace(commit=lambda offsets, **_: committed.append(offsets))
    client = SimpleNamespace(topic="t")
    told = Told(5, 2, "me")
    assert PythonGroup(client, consumer, 1_000, has_headers=False).claim({3: told})
    [kept] = [offsets[TopicPartition("t", 3)] for offsets in committed]
    assert kept.metadata == "2 me\0"
    assert Told.read(kept.offset, f"{kept.metadata}what lies behind") == told
