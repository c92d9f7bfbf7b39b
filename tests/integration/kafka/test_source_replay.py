import argparse
import gzip
import json
import secrets

import pytest

from tests.integration.kafka.source_rows import read, row, source, uids
from walle_connectors.kafka import replay
from walle_stream.errors import BrokerUnreachableError, SourceError, TopicError

pytestmark = pytest.mark.integration


def walle(*arguments):
    parser = argparse.ArgumentParser()
    replay.add(parser.add_subparsers())
    options = parser.parse_args(["replay", *map(str, arguments)])
    return options.run(options)


def written(path, numbers, step_ms=1):
    lines = [
        {"device_id": f"d{n % 5}", **row("", n)[1], "ingest_time_ms": 1_000 + n * step_ms}
        for n in numbers
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return lines


def test_a_file_goes_into_a_topic_and_comes_back(address, topics, tmp_path, capsys):
    name, file, back = topics.make(3), tmp_path / "e.jsonl", tmp_path / "back.jsonl"
    lines = written(file, range(500))
    assert walle(file, "--topic", name, "--brokers", address, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["events"], told["bytes"]) == (500, len(file.read_bytes()) - 500)
    batches = read(source(address, name), partitions=3)
    homes = {event.device_id: batch.partition for batch in batches for event in batch.events}
    assert sorted(uids(batches)) == list(range(500))
    for device, partition in homes.items():
        own = [e for b in batches for e in b.events if e.device_id == device]
        assert {b.partition for b in batches for e in b.events if e in own} == {partition}
        assert [e.event_time_ms for e in own] == sorted(e.event_time_ms for e in own)
    topics.write(name, [("d1", b"{"), ("d1", None)])
    assert walle(back, "--record", "--topic", name, "--brokers", address, "--json") == 0
    assert json.loads(capsys.readouterr().out)["skipped"] == 2
    found = [json.loads(line) for line in back.read_text().splitlines()]
    times = [line.pop("ingest_time_ms") for line in found]
    assert times == sorted(times)
    for line in lines:
        del line["ingest_time_ms"]
    assert sorted(found, key=lambda e: int(e["uid"])) == lines


def test_a_speed_keeps_the_distances(address, topics, tmp_path, monkeypatch, capsys):
    slept = []
    clock = [0.0]

    def sleep(seconds):
        slept.append(seconds)
        clock[0] += seconds * 1000

    monkeypatch.setattr(replay.time, "sleep", sleep)
    monkeypatch.setattr(replay, "monotonic_ms", lambda: clock[0])
    name, file = topics.make(1), tmp_path / "e.jsonl"
    written(file, range(11), step_ms=100)
    walle(file, "--topic", name, "--brokers", address, "--speed", "2.0")
    assert sum(slept) == pytest.approx(0.5)
    assert "11 events" in capsys.readouterr().out


def test_what_is_wrong_is_one_line(address, topics, tmp_path):
    name, file = topics.make(1), tmp_path / "e.jsonl"
    written(file, range(2))
    with pytest.raises(TopicError, match=r"'absent' \(--topic\) does not exist"):
        walle(tmp_path / "x.jsonl", "--record", "--topic", "absent", "--brokers", address)
    assert not (tmp_path / "x.jsonl").exists()
    with file.open("a") as more:
        more.write('{"id": "1"}\n')
    with pytest.raises(SourceError, match=r"e\.jsonl:3: not an event: .*missing.*the 2 events"):
        walle(file, "--topic", name, "--brokers", address)
    assert len(read(source(address, name), partitions=1)) > 0
    with pytest.raises(SourceError, match="there is no file"):
        walle(tmp_path / "absent", "--topic", name, "--brokers", address)


def test_a_topic_that_is_not_there_is_not_waited_for_and_not_made(address, tmp_path):
    file = tmp_path / "e.jsonl"
    written(file, range(2))
    for _ in range(2):
        with pytest.raises(TopicError, match=r"'absent' \(--topic\) does not exist"):
            walle(file, "--topic", "absent", "--brokers", address)


def test_an_event_that_is_too_large_for_the_topic_is_said(address, topics, tmp_path):
    name, file = topics.make(1), tmp_path / "e.jsonl"
    file.write_text(
        json.dumps({"device_id": "d", **row("", 1)[1], "x": secrets.token_hex(1_500_000)}) + "\n"
    )
    with pytest.raises(TopicError, match="refuses record 1 or one shortly before it"):
        walle(file, "--topic", name, "--brokers", address)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        *(
            (["--topic", topic, "--brokers", "127.0.0.1:9"], "--topic: expected at most 249")
            for topic in ("", "a b", "x" * 300, "\udcff", ".", "..")
        ),
        (["--topic", "t", "--brokers", "nowhere"], "--brokers: expected HOST:PORT"),
        (["--topic", "t", "--brokers", "h:1", "--tls-cert", "x"], "--tls-cert and --tls-key"),
    ],
)
@pytest.mark.parametrize("way", [[], ["--record"]])
def test_wrong_usage_is_refused_as_such(options, words, way, tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        walle(tmp_path / "e.jsonl", *options, *way)
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("speed", ["0", "-1", "x", "nan", "inf"])
def test_a_speed_is_a_number_above_0(speed, tmp_path, capsys):
    with pytest.raises(SystemExit):
        walle(tmp_path / "e.jsonl", "--topic", "t", "--brokers", "127.0.0.1:9", f"--speed={speed}")
    assert f"{speed!r} is not a number above 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"event_time_ms": 10**20 - 1}, "a time is outside 0"),
        ({"event_time_ms": -1}, "a time is outside 0"),
        ({"id": None}, "not an event"),
        ({"page_instance": 7}, "not an event"),
        ({"device_id": ""}, "device id"),
    ],
)
def test_what_the_source_would_refuse_is_not_sent(changes, words, address, topics, tmp_path):
    name, file = topics.make(1), tmp_path / "e.jsonl"
    [line] = written(file, range(1))
    with file.open("a") as more:
        more.write(json.dumps(line | changes) + "\n")
    with pytest.raises(SourceError, match=rf"e\.jsonl:2: .*{words}.*the 1 events before it"):
        walle(file, "--topic", name, "--brokers", address)
    assert uids(read(source(address, name), partitions=1)) == [0]


def test_an_arrival_that_no_event_has_is_not_waited_for(address, topics, tmp_path):
    name, file = topics.make(1), tmp_path / "e.jsonl"
    [line] = written(file, range(1))
    with file.open("a") as more:
        more.write(json.dumps(line | {"ingest_time_ms": 10**400}) + "\n")
    assert walle(file, "--topic", name, "--brokers", address, "--speed", "1") == 0


def test_a_recording_is_a_new_file_and_says_what_it_left_out(address, topics, tmp_path, capsys):
    name, file = topics.make(1), tmp_path / "e.jsonl.gz"
    topics.write(name, [row("d", 1), ("d", b"{"), ("d", None)])
    record = (file, "--record", "--topic", name, "--brokers", address)
    assert walle(*record) == 0
    assert "1 events" in (told := capsys.readouterr().out)
    assert "; 2 records without a valid event were skipped" in told
    before = file.read_bytes()
    assert json.loads(gzip.decompress(before))["uid"] == "1"
    with pytest.raises(SourceError, match="exists already: name a new file"):
        walle(*record)
    assert file.read_bytes() == before


def test_a_broker_that_is_not_there_has_its_own_error(tmp_path, monkeypatch):
    monkeypatch.setattr(replay, "_CONNECT_MS", 100)
    written(tmp_path / "e.jsonl", range(1))
    with pytest.raises(BrokerUnreachableError) as caught:
        walle(tmp_path / "e.jsonl", "--topic", "t", "--brokers", "127.0.0.1:9")
    assert caught.value.exit_code == 12


def test_partitions_that_wait_for_others_are_recorded_whole(address, topics, tmp_path, capsys):
    # one is paused again and again, as it is ahead of the other's times; more than one fetch each
    name, back, count = topics.make(3), tmp_path / "back.jsonl", 9_000
    for partition, step_ms in enumerate((1, 3, 2)):
        rows = [row(f"d{partition}", n, filler="x" * 300) for n in range(count)]
        topics.write(name, [(*each, partition, 1_000 + n * step_ms) for n, each in enumerate(rows)])
    assert walle(back, "--record", "--topic", name, "--brokers", address, "--json") == 0
    assert json.loads(capsys.readouterr().out)["events"] == 3 * count
    found = [json.loads(line) for line in back.read_text().splitlines()]
    times = [each["ingest_time_ms"] for each in found]
    assert times == sorted(times)
    for partition in range(3):
        own = [each["uid"] for each in found if each["device_id"] == f"d{partition}"]
        assert own == [str(n) for n in range(count)]
