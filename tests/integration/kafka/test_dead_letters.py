"""Dead letters of a pipeline over Kafka: into their topic through any death, and back again."""

import collections
import json
import threading

import pytest
import yaml

from tests.integration.kafka.source_rows import row
from walle_connectors.kafka import CONNECTOR
from walle_connectors.kafka.dead_letters import sink
from walle_connectors.kafka.dead_letters.model import KafkaDeadLetterModel
from walle_stream.app.queries.query import open_partitions, run_state
from walle_stream.app.queries.replay import kept_letters
from walle_stream.errors import TopicError
from walle_stream.ports import DeadLetter, KeptLetter
from walle_stream.store import keys

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

KAFKA = "walle_connectors.kafka:CONNECTOR"
SCRIPT = """
def run(ctx, page):
    if page.page_id == "broken":
        raise KeyError("as it should")
    ctx.emit({"dwell_ms": page.dwell_ms})
"""
BAD = {
    b'{"id": ': "decode",
    b"\xff\xfe": "decode",
    b'{"id": "x"}': "decode",
    json.dumps(row("d", 1)[1] | {"device_id": "another"}).encode(): "invalid",
    b'{"big": "' + b"x" * 3_000 + b'"}': "oversized",
}


class Job:
    """A pipeline in a folder: a source topic with bad records in it, a topic for dead letters."""

    def __init__(self, folder, address, topics, walle):
        self.folder, self.topics, self.address, self.walle = folder, topics, address, walle
        self.data_dir, self.file = folder / "d", folder / "p.yaml"
        self.source, self.letters = topics.make(2), topics.make(3)
        topics.write(self.source, list(self.written()))
        (folder / "t.py").write_text(SCRIPT)
        self.write()

    def written(self):
        for number in range(60):
            device, page = f"d{number % 7}", "broken" if number % 20 == 5 else "page"
            given = {"page_id": page, "page_instance": str(number)}
            for kind in ("page_enter", "page_exit"):
                yield *row(device, 10 * number, id=kind, kind=kind, **given), number % 7 % 2
            if number % 6 == 0:
                for value in BAD:
                    yield device, value, number % 7 % 2

    def write(self, **changes):
        task = {"script": "t.py", "triggers": [{"sequence": ["page_exit"]}]}
        task["onError"] = {"retry": {"attempts": 2, "backoff": "1ms"}}
        spec = {
            "source": {
                "connector": KAFKA,
                "brokers": self.address,
                "topic": self.source,
                "stopAtEnd": True,
                "maxRecordBytes": 2_000,
            },
            "deadLetters": {"connector": KAFKA, "brokers": self.address, "topic": self.letters},
            "runtime": {"partitions": 2, "batchEvents": 20},
            "tasks": [{"task": "visits"}],
        }
        documents = [
            {
                "apiVersion": "walle/v1",
                "kind": "Pipeline",
                "metadata": {"name": "visits"},
                "spec": spec | changes,
            },
            {
                "apiVersion": "walle/v1",
                "kind": "Task",
                "metadata": {"name": "visits"},
                "spec": task,
            },
        ]
        self.file.write_text(yaml.safe_dump_all(documents))

    def run(self, crash=""):
        command = ("run", self.file, "--json", "--data-dir", self.data_dir)
        done = self.walle(*command, environ={"WALLE_CRASH": crash}, check=False)
        assert done.returncode in {0, -9 if crash else 0}, done.stderr
        return done.returncode

    @property
    def kept(self):
        return {each.idempotency_key: each for each in kept_letters(self.data_dir)}

    @property
    def unsent(self):
        return sum(
            1
            for _, store in open_partitions(self.data_dir)
            for _ in store.scan(keys.UNSENT_LETTER_PREFIX)
        )

    def archived(self):
        model = KafkaDeadLetterModel(brokers=self.address, topic=self.letters)
        archive = CONNECTOR.open_archive(model)
        try:
            return list(archive.letters())
        finally:
            archive.close()

    def count(self):
        """Return how many records of each value the source's topic has, by partition."""
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(bootstrap_servers=self.address)
        places = [TopicPartition(self.source, number) for number in range(2)]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        ends = consumer.end_offsets(places)
        found = collections.Counter()
        while any(consumer.position(place) < ends[place] for place in places):
            for place, records in consumer.poll(100).items():
                found.update((place.partition, record.key, record.value) for record in records)
        consumer.close()
        return found


@pytest.fixture
def job(tmp_path, address, topics, walle):
    return Job(tmp_path, address, topics, walle)


def expected_origins(job):
    """Return the origins of all refused records, found by a plain look at the topic."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=job.address)
    places = [TopicPartition(job.source, number) for number in range(2)]
    consumer.assign(places)
    consumer.seek_to_beginning(*places)
    ends = consumer.end_offsets(places)
    found = {}
    while any(consumer.position(place) < ends[place] for place in places):
        for place, records in consumer.poll(100).items():
            for each in records:
                if each.value in BAD:
                    origin = f"{job.source}[{place.partition}]@{each.offset}"
                    found[origin] = (BAD[each.value], each.value)
    consumer.close()
    return found


def failing_exits(job):
    """Return the records that wake the runs that fail: as they were written, by partition."""
    offsets, found = collections.Counter(), []
    for _, value, partition, *_ in job.written():
        if isinstance(value, dict) and (value["page_id"], value["kind"]) == ("broken", "page_exit"):
            found.append(f"{job.source}[{partition}]@{offsets[partition]}")
        offsets[partition] += 1
    return sorted(found)


def check(job):
    kept = job.kept
    refused = {
        each.letter.origin: each.letter for each in kept.values() if each.letter.route != "task"
    }
    expected = expected_origins(job)
    assert {origin: (each.route, each.record) for origin, each in refused.items()} == expected
    failed = [each.letter for each in kept.values() if each.letter.route == "task"]
    assert [(each.attempts, each.error, each.holds) for each in failed] == [
        (2, "KeyError", "page")
    ] * 3
    # the record behind which they ran: their events may have waited for their devices' order
    for place, exit_at in zip(
        sorted(each.place for each in failed), failing_exits(job), strict=True
    ):
        (lane, offset), (lane_of_exit, least) = place.split("@"), exit_at.split("@")
        assert lane == lane_of_exit
        assert int(offset) >= int(least)
    assert len(kept) == len(expected) + 3
    counters = run_state(job.data_dir).counters
    assert (counters.dead_letter_rows, counters.task_failures) == (len(expected), 3)
    assert counters.dead_letters == len(kept)
    return kept


def test_every_refused_record_has_one_letter_here_and_in_the_topic(job):
    assert job.run() == 0
    kept, archived = check(job), job.archived()
    assert len(archived) == len(kept)
    assert {each.idempotency_key: each.letter.record for each in archived} == {
        key: each.letter.record for key, each in kept.items()
    }
    assert {each.letter for each in archived} == {each.letter for each in kept.values()}
    assert job.unsent == 0


def test_deaths_between_commit_and_acknowledgement_lose_none(job):
    points = (
        "letter.before:1",
        "letter.after:4",
        "commit.after:3",
        "letter.before:5",
        "commit.before:3",
        "letter.after:1",
        "close.before:1",
    )
    deaths = sum(job.run(point) == -9 for point in points)
    assert deaths >= 4
    assert job.run() == 0
    kept, archived = check(job), job.archived()
    assert {each.idempotency_key for each in archived} == kept.keys()
    for each in archived:  # also those that were sent twice
        assert each.letter == kept[each.idempotency_key].letter
    assert job.unsent == 0


def test_a_topic_that_comes_later_gets_what_waited(job):
    job.write(deadLetters={"connector": KAFKA, "brokers": "127.0.0.1:1", "topic": job.letters})
    assert job.run() == 0
    assert job.unsent == len(check(job))
    assert job.archived() == []
    job.write()
    assert job.run() == 0
    assert {each.idempotency_key for each in job.archived()} == job.kept.keys()
    assert job.unsent == 0


def test_a_missing_topic_ends_the_run_with_what_to_do(job, walle):
    job.write(deadLetters={"connector": KAFKA, "brokers": job.address, "topic": "not-there"})
    done = walle("run", job.file, "--data-dir", job.data_dir, check=False)
    assert done.returncode == 13
    assert (
        "topic 'not-there' (spec.deadLetters.topic) does not exist" in done.stderr.splitlines()[-1]
    )


def replayed(walle, job, *options):
    done = walle("dead-letters", "replay", job.file, "--json", *options)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("place", ["data directory", "topic"])
def test_records_go_back_where_they_came_from_once(job, walle, place):
    assert job.run() == 0
    before = job.count()
    options = ["--from-topic"] if place == "topic" else ["--data-dir", job.data_dir]
    refused = expected_origins(job)
    found = replayed(walle, job, *options, "--dry-run")
    assert (found["replayed"], found["dry_run"]) == (len(refused), True)
    assert job.count() == before
    found = replayed(walle, job, *options, "--route", "invalid")
    assert found["replayed"] == sum(route == "invalid" for route, _ in refused.values())
    found = replayed(walle, job, *options)
    assert found["replayed"] == sum(route != "invalid" for route, _ in refused.values())
    after = job.count()
    assert {key: after[key] // before[key] for key in before} == {
        key: 2 if key[2] in BAD else 1 for key in before
    }
    assert replayed(walle, job, *options)["replayed"] == 0
    assert replayed(walle, job, *options, "--again", "--limit", "3")["replayed"] == 3


def test_a_run_reads_what_was_replayed(job, walle):
    assert job.run() == 0
    letters = len(job.kept)
    count = replayed(walle, job, "--data-dir", job.data_dir, "--device", "d0")["replayed"]
    assert 0 < count < letters
    # a bounded run is over: another data directory reads all
    job.data_dir = job.folder / "other"
    assert job.run() == 0
    assert len(job.kept) == letters + count


def test_the_topic_goes_into_a_file_with_its_failed_pages(job, walle):
    assert job.run() == 0
    out = job.folder / "out.jsonl"
    found = replayed(walle, job, "--from-topic", "--to", out)
    cut = sum(each.letter.route == "oversized" and not each.is_whole for each in job.archived())
    assert (found["replayed"], cut) == (len(job.kept), 0)
    assert sum(b'"page_id":"broken"' in line for line in out.read_bytes().splitlines()) == 6
    again = replayed(walle, job, "--from-topic", "--to", job.folder / "second")
    assert (again["replayed"], sum(again["skipped"].values())) == (0, len(job.kept))
    assert replayed(walle, job, "--from-topic", "--set", "metadata.name=other")["skipped"] == {}


def test_what_cannot_be_replayed_so_is_one_line(job, walle, tmp_path):
    assert job.run() == 0
    replay = ["dead-letters", "replay"]
    # letters go no more to the topic that shall be the source
    other = ["--set", "spec.deadLetters=null", "--set", f"spec.source.topic={job.letters}"]
    for arguments, code, words in [
        (["--data-dir", job.data_dir], 3, "needs FILE"),
        (["--from-topic"], 3, "needs FILE"),
        ([job.file, "--data-dir", tmp_path / "no"], 6, "is no data directory"),
        (
            [job.file, "--set", "metadata.name=other", "--data-dir", job.data_dir],
            3,
            "belongs to pipeline",
        ),
        (
            [job.file, *other, "--data-dir", job.data_dir],
            4,
            "is not the one",
        ),
        (
            [job.file, "--set", "spec.deadLetters=null", "--from-topic"],
            3,
            "has no spec.deadLetters",
        ),
        (
            [job.file, "--set", "spec.deadLetters.brokers=127.0.0.1:1", "--from-topic"],
            12,
            "no broker answers",
        ),
        ([job.file, "--data-dir", "d", "--from-topic"], 2, "not allowed with"),
    ]:
        done = walle(*replay, *arguments, check=False)
        assert (done.returncode, words in done.stderr) == (code, True), (arguments, done.stderr)
        assert len(done.stderr.splitlines()) == 1


def test_walle_topics_knows_the_topic(job):
    from walle_connectors.kafka.pipeline import kafka_parts, load_kafka

    parts = {part.place: part.topics[0].name for part in kafka_parts(load_kafka(job.file))}
    assert parts == {"spec.source": job.source, "spec.deadLetters": job.letters}


def test_a_broker_that_dies_has_every_letter_when_it_is_back(broker, topic):
    from walle_stream.clock import monotonic_ms
    from walle_stream.testing.dead_letter_suite import kept_letter

    model = KafkaDeadLetterModel(brokers=broker.address(), topic=topic("letters", partitions=2))
    sink, acknowledged = CONNECTOR.open_letters(model), set()
    try:
        for number in range(90):
            if number == 30:
                broker.kill()
            if number == 60:
                broker.start()
            sink.send(kept_letter(0, number))
        deadline_ms = monotonic_ms() + 60_000
        while len(acknowledged) < 90:
            acknowledged.update(sink.acks(0))
            assert monotonic_ms() < deadline_ms
    finally:
        sink.close()
    archive = CONNECTOR.open_archive(model)
    found = {each.number: each for each in archive.letters()}
    archive.close()
    assert found == {number: kept_letter(0, number) for number in range(90)}


def test_a_topic_that_keeps_only_the_last_of_each_is_refused(address, topics):
    name = topics.make(1, **{"cleanup.policy": "compact"})
    with pytest.raises(TopicError, match="is compacted"):
        CONNECTOR.open_letters(KafkaDeadLetterModel(brokers=address, topic=name))


def test_a_letter_that_the_topic_refuses_holds_up_no_other(address, topics, monkeypatch, caplog):
    monkeypatch.setattr(sink, "expect_kept", lambda *_: None)
    name = topics.make(1, **{"cleanup.policy": "compact"})
    model = KafkaDeadLetterModel(brokers=address, topic=name)
    opened = CONNECTOR.open_letters(model)
    for number in range(6):
        letter = DeadLetter(
            route="decode", reason="r", origin=f"o{number}", device_id="d" * (number % 2)
        )
        opened.send(
            KeptLetter(letter=letter, pipeline="p", incarnation="i", partition=0, number=number)
        )
    acknowledged, tick = set(), threading.Event()
    for _ in range(600):
        acknowledged.update(opened.acks(0))
        if len(acknowledged) == 6:
            break
        tick.wait(0.1)
    opened.close()
    assert acknowledged == set(range(6))
    assert caplog.text.count("a record of 0 bytes is refused") == 3
    assert "Traceback" not in caplog.text
    archive = CONNECTOR.open_archive(model)
    assert [each.number for each in archive.letters()] == [1, 3, 5]
    archive.close()
