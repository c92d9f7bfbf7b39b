"""A partition's table beside a naive one: any cuts, reopenings and copies give the same rows."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from walle_stream.cloud.heads import chain_digest
from walle_stream.cloud.merging import Stretch
from walle_stream.cloud.partition_table import PartitionTable
from walle_stream.wire.frame import FeatureRecord

DEVICES = ("a", "b", "ab")
INCARNATIONS = ("11" * 8, "22" * 8)

# (incarnation, epoch, device, task, number): a topic of anybody, in its order
TOPIC = st.lists(
    st.tuples(
        st.sampled_from(INCARNATIONS),
        st.integers(1, 3),
        st.sampled_from(DEVICES),
        st.sampled_from("tu"),
        st.integers(1, 40),
    ),
    max_size=120,
)
CUTS = st.lists(st.tuples(st.integers(1, 30), st.booleans()), min_size=1, max_size=8)


def naive(topic):
    """All that is merged, by device: rows in key order, and the chain of each incarnation."""
    epochs, last, found = {}, {}, {device: ({}, {}) for device in DEVICES}
    generations = {device: [] for device in DEVICES}
    for incarnation, epoch, device, task, number in topic:
        if epoch < epochs.get(incarnation, 0):
            continue
        epochs[incarnation] = epoch
        if incarnation not in generations[device]:
            generations[device].append(incarnation)
        if number <= last.get((incarnation, device), 0):
            continue
        last[incarnation, device] = number
        rows, digests = found[device]
        rows[generations[device].index(incarnation), number] = task
        made = record(device, task, number)
        digests[incarnation] = chain_digest(digests.get(incarnation, b""), made)
    return found


def record(device, task, number):
    return FeatureRecord(device, task, "1", number, b"%d" % number, b"", number)


@settings(max_examples=60)
@given(TOPIC, CUTS, st.integers(1, 6))
def test_any_cut_gives_the_naive_table(topic, cuts, keep):
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "t"
        table = PartitionTable(path, keep)
        while table.place.next < len(topic):
            size, is_reopened = cuts[table.place.next % len(cuts)]
            first = table.place.next
            part = topic[first : first + size]
            stretches = [
                Stretch(incarnation, 0, epoch, [record(device, task, number)])
                for incarnation, epoch, device, task, number in part
            ]
            table.take(stretches, b"", first + len(part))
            if is_reopened:
                table.close()
                table = PartitionTable(path, keep)
        for device, (rows, digests) in naive(topic).items():
            kept = table.look_up(device)
            if kept is None:
                assert not rows
                continue
            for task in "tu":
                wanted = [key for key in sorted(rows, reverse=True) if rows[key] == task]
                found = [(g, n) for g, n, row in kept.rows if row.task == task]
                assert found[:keep] == wanted[:keep]
                assert len(found) <= keep + max(keep // 2, 8)
            assert dict(zip(kept.head.incarnations, kept.head.digests, strict=True)) == digests
        table.close()
