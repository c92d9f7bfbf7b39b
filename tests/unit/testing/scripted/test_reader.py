"""Features outside the conformance suite: pauses, aborts, several ends."""

import os
import signal
import subprocess
import sys

import pytest

from walle_stream.errors import SourceError
from walle_stream.testing.scripted import CONNECTOR, END, Gates, abort, pause, write_script

DIES = """
import sys
from pathlib import Path
from walle_stream.testing.scripted import CONNECTOR
reader = CONNECTOR.open(CONNECTOR.model(script=Path(sys.argv[1]))).open({}, 1, 10)
while not reader.is_done:
    for batch in reader.read():
        print(*(event.event_time_ms for event in batch.events), batch.is_end, flush=True)
"""


def event(time_ms, device="a"):
    return {"device_id": device, "kind": "click", "page_id": "p", "event_time_ms": time_ms}


@pytest.fixture
def script(tmp_path):
    def make(*steps):
        write_script(tmp_path / "s.jsonl", steps)
        return CONNECTOR.open(CONNECTOR.model(script=tmp_path / "s.jsonl"))

    return make


def times(batches):
    return [event.event_time_ms for batch in batches for event in batch.events]


def rest(reader):
    found = []
    while not reader.is_done:
        found += reader.read()
    return found


def test_a_pause_hands_over_what_is_before_it_then_waits(script, tmp_path):
    gates = Gates(tmp_path / "s.jsonl.gates")
    reader = script(event(1), event(2), pause("here"), event(3)).open({}, 1, 10)
    assert times(reader.read()) == [1, 2]
    assert not gates.is_reached("here")
    assert reader.read() == []
    assert gates.await_reached("here", 0.0)
    assert reader.read() == []
    assert not reader.is_done
    gates.release("here")
    assert times(rest(reader)) == [3]


def test_a_run_that_is_stopped_at_a_pause_goes_on_there(script):
    source = script(event(1), pause("here"), event(2))
    reader = source.open({}, 1, 10)
    [batch] = reader.read()
    reader.read()
    assert reader.drain() == []
    assert reader.is_done
    again = source.open({0: batch.offset}, 1, 10)
    assert again.read() == []
    assert not again.is_done


def test_a_run_goes_to_an_end_and_the_next_goes_on_behind_it(script):
    source = script(event(1), END, event(2, "b"), event(3), END, event(4))
    offsets, found = {}, []
    for _ in range(4):
        batches = rest(source.open(offsets, 2, 10))
        offsets |= {batch.partition: batch.offset for batch in batches}
        found.append((times(batches), sum(batch.is_end for batch in batches)))
    assert found == [([1], 2), ([2, 3], 2), ([4], 2), ([], 0)]


def test_an_end_that_one_partition_has_passed_is_passed_by_the_others_alone(script):
    source = script(event(1, "a"), event(2, "b"), END, event(3, "a"), event(4, "b"))
    first = rest(source.open({}, 2, 10))
    ended = first[0].partition
    batches = rest(source.open({ended: first[0].offset}, 2, 10))
    assert {batch.partition for batch in batches} == {1 - ended}
    assert [batch.is_end for batch in batches] == [True]


def test_an_abort_kills_the_process_once(script, tmp_path):
    script(event(1), abort("now"), event(2))
    command = [sys.executable, "-c", DIES, tmp_path / "s.jsonl"]
    first = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert (first.returncode, first.stdout) == (-signal.SIGKILL, "1 False\n")
    assert Gates(tmp_path / "s.jsonl.gates").is_aborted("now")
    second = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    assert second.stdout == "1 False\n2 True\n"


def test_an_offset_beyond_the_script_is_refused(script):
    with pytest.raises(SourceError, match="this script has 2"):
        script(event(1)).open({0: b'{"v":2,"steps":3}'}, 1, 10)
