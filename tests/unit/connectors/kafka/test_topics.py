"""Messages about topics: missing, wrong, and settings that lose data."""

import argparse

import pytest

from walle_connectors.kafka import command
from walle_connectors.kafka.cluster import FoundTopic, NeededTopic
from walle_connectors.kafka.doctor import _settings
from walle_connectors.kafka.pipeline import kafka_parts, load_kafka
from walle_connectors.kafka.topics import topic_problem, tunnel_topics
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel
from walle_stream.errors import SpecFileError

NEEDED = NeededTopic("t", "spec.tunnel.topic", 4, 1_000_000)
GOOD = {
    "min.insync.replicas": "2",
    "max.message.bytes": "1048588",
    "retention.ms": "604800000",
    "cleanup.policy": "delete",
}

LOOP = """
apiVersion: walle/v1
kind: Pipeline
metadata: {name: loop}
spec:
  source: {connector: kafka, brokers: ["h:1", "h:2"], topic: raw}
  tunnel: {connector: kafka, brokers: "h:2", topic: up, downTopic: down}
  deadLetters: {connector: kafka, brokers: "h:2", topic: letters}
  tasks: [{task: t}]
---
apiVersion: walle/v1
kind: Task
metadata: {name: t}
spec: {script: t.py, triggers: [{sequence: [page_exit]}]}
"""


def test_a_tunnel_needs_its_topics():
    model = KafkaTunnelModel(brokers="h:1", topic="up", max_bytes=2048)
    assert tunnel_topics(model, 3) == [NeededTopic("up", "spec.tunnel.topic", 3, 2048)]
    both = tunnel_topics(KafkaTunnelModel(brokers="h:1", topic="up", down_topic="down"))
    assert [(each.name, each.key) for each in both] == [
        ("up", "spec.tunnel.topic"),
        ("down", "spec.tunnel.downTopic"),
    ]


def test_what_is_missing_or_has_other_partitions_is_told():
    assert "does not exist: walle topics FILE --create" in topic_problem(NEEDED, None)
    found = FoundTopic(3, 3, GOOD)
    assert "has 3 partitions, the pipeline 4: set spec.runtime" in topic_problem(NEEDED, found)
    assert topic_problem(NEEDED, FoundTopic(4, 3, {})) == ""
    assert topic_problem(NeededTopic("t", "k"), found) == ""
    hidden = FoundTopic(0, 0, {}, is_hidden=True)
    assert "this client has no access to it" in topic_problem(NEEDED, hidden)


@pytest.mark.parametrize(
    ("changes", "replicas", "level", "words"),
    [
        ({}, 3, "ok", "4 partitions, 3 replicas, kept 168 h"),
        ({"retention.ms": "-1"}, 3, "ok", "kept for ever"),
        ({}, 1, "fail", "min.insync.replicas is 2 of 1"),
        ({"min.insync.replicas": "1"}, 1, "warn", "one replica"),
        ({"min.insync.replicas": "1"}, 3, "warn", "set 2"),
        ({"max.message.bytes": "1000000"}, 3, "warn", "set at least 1000512"),
        ({"retention.ms": "60000"}, 3, "warn", "less than a day"),
        ({"cleanup.policy": "compact,delete"}, 3, "fail", "compacts"),
    ],
)
def test_settings_are_judged(changes, replicas, level, words):
    [check] = _settings(NEEDED, FoundTopic(4, replicas, GOOD | changes))
    assert (check.level, words in check.text) == (level, True)
    assert check.exit_code == (13 if level == "fail" else 0)


def test_partitions_without_a_leader_are_told():
    [check] = _settings(NEEDED, FoundTopic(4, 3, GOOD, leaderless=2))
    assert (check.level, "2 partitions have no leader" in check.text) == ("fail", True)


@pytest.mark.parametrize("number", ["0", "-1", "x", "32768", "9" * 5_000, "٣"])
def test_copies_are_a_number_that_the_protocol_knows(number, capsys):
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers())
    with pytest.raises(SystemExit):
        parser.parse_args(["topics", "p.yaml", "--create", "--replicas", number])
    assert "is not a number from 1 to 32767" in capsys.readouterr().err
    assert parser.parse_args(["topics", "p.yaml", "--replicas", "3"]).replicas == 3


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("tunnel.topic=raw", r"spec\.tunnel\.topic: is spec\.source\.topic, too"),
        ("tunnel.downTopic=up", r"spec\.tunnel\.downTopic: is spec\.tunnel\.topic, too"),
        ("deadLetters.topic=raw", r"spec\.deadLetters\.topic: is spec\.source\.topic, too"),
        ("deadLetters.topic=down", r"spec\.deadLetters\.topic: is spec\.tunnel\.downTopic, too"),
    ],
)
def test_a_pipeline_never_reads_what_it_writes(tmp_path, override, words):
    file = tmp_path / "p.yaml"
    file.write_text(LOOP)
    assert len(kafka_parts(load_kafka(file))) == 3
    with pytest.raises(SpecFileError, match=words):
        kafka_parts(load_kafka(file, [f"spec.{override}"]))


def test_topics_of_one_name_at_other_brokers_are_others(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(LOOP)
    assert kafka_parts(
        load_kafka(file, ["spec.deadLetters.topic=raw", "spec.deadLetters.brokers=h:3"])
    )


def test_a_sink_over_kafka_is_a_part_with_a_topic_of_its_own(tmp_path):
    file, sink = tmp_path / "p.yaml", "spec.sinks.out"
    file.write_text(LOOP)
    keys = [f"{sink}.connector=kafka", f"{sink}.brokers=h:2", f"{sink}.topic=merged"]
    other = ["spec.sinks.lake.connector=parquet", "spec.sinks.lake.path=lake"]
    part = kafka_parts(load_kafka(file, keys + other))[-1]
    assert (part.place, part.topics[0].key) == (sink, f"{sink}.topic")
    with pytest.raises(SpecFileError, match=r"spec\.sinks\.out\.topic: is spec\.tunnel\.topic"):
        kafka_parts(load_kafka(file, [*keys[:-1], f"{sink}.topic=up"]))
