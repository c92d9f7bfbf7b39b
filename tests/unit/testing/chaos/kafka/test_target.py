"""The parts of a campaign over Kafka, without a broker."""

import re
from pathlib import Path

import pytest

from walle_stream.errors import CampaignError
from walle_stream.testing.chaos import ChaosPlan, PartPlan
from walle_stream.testing.chaos.kafka import KafkaTarget, target
from walle_stream.testing.chaos.targets import find_target


def plan(pipeline="shop", *overrides):
    return ChaosPlan(pipeline=pipeline, overrides=overrides, parts=(PartPlan("kafka", 1),))


def test_targets_are_found_by_name(tmp_path):
    for name in ("kafka", "kafka-machines"):
        assert isinstance(find_target(name)(plan(), tmp_path), KafkaTarget)


def test_a_broker_that_is_another_s_is_not_broken(tmp_path, monkeypatch):
    monkeypatch.delenv("WALLE_KAFKA", raising=False)
    own = {role.name for role in KafkaTarget(plan(), tmp_path).roles}
    monkeypatch.setenv("WALLE_KAFKA", "127.0.0.1:9092")
    given = {role.name for role in KafkaTarget(plan(), tmp_path).roles}
    assert own - given == {"broker", "cut", "pause"}


def test_only_processes_that_die_are_kills(tmp_path, monkeypatch):
    monkeypatch.delenv("WALLE_KAFKA", raising=False)
    roles = KafkaTarget(plan(), tmp_path).roles
    assert {role.name for role in roles if role.is_kill} == {"host", "cloud", "broker", "sender"}
    assert not any(role.ends_run for role in roles)


def test_a_pipeline_without_a_simulator_is_refused(tmp_path):
    with pytest.raises(CampaignError, match="simulator"):
        KafkaTarget(plan("ipv"), tmp_path)


def test_before_anything_was_started_nothing_stands(tmp_path):
    assert KafkaTarget(plan(), tmp_path).standing(tmp_path / "life-1") is None


def test_the_docs_name_the_ends_that_are_no_findings():
    text = (Path(__file__).parents[5] / "docs/testing.md").read_text()
    ends_of = {
        "A host may end": target._HOST_ENDS,
        "the cloud app": target._CLOUD_ENDS,
        "the sender": target._SENDER_ENDS,
    }
    pattern = ", ".join(f"{who} with (.*?)" for who in ends_of) + "; the"
    found = re.search(pattern, text, re.DOTALL)
    for said, ends in zip(found.groups(), ends_of.values(), strict=True):
        assert {*map(int, re.findall(r"\b\d+\b(?! s)", said))} == ends.keys()
