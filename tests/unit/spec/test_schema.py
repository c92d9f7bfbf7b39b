"""The JSON Schema says what the loader accepts."""

import json

import pytest

from walle_stream.spec.connectors import ConnectorModels
from walle_stream.spec.schema import DIALECT, json_schema


@pytest.fixture
def schema(models):
    return json_schema(models)


@pytest.fixture
def property_of(schema):
    def find(part, name):
        return schema["$defs"][part]["properties"][name]

    return find


def test_it_is_json_of_the_dialect_for_both_kinds(schema):
    assert schema["$schema"] == DIALECT
    assert schema["oneOf"] == [{"$ref": "#/$defs/Pipeline"}, {"$ref": "#/$defs/Task"}]
    assert json.loads(json.dumps(schema)) == schema


def test_every_reference_is_defined(schema):
    text = json.dumps(schema)
    names = {part.split('"')[0] for part in text.split("#/$defs/")[1:]}
    assert names <= set(schema["$defs"])


def test_unknown_keys_are_refused_everywhere(schema):
    parts = [part for part in schema["$defs"].values() if part.get("type") == "object"]
    assert parts
    assert all(part["additionalProperties"] is False for part in parts)


def test_durations_are_text_with_defaults_as_in_yaml(property_of):
    found = property_of("SequenceSpec", "pageTimeout")
    assert found["default"] == "30m"
    assert {"const": "never"} in found["anyOf"]
    assert property_of("FileKeys", "waitMs")["default"] == "0s"


def test_every_number_may_come_from_the_environment(property_of):
    variable = {"$ref": "#/$defs/Variable"}
    assert variable in property_of("RuntimeSpec", "hosts")["anyOf"]
    [of_sync, _] = property_of("StateSpec", "sync")["anyOf"]
    assert variable in of_sync["anyOf"]


@pytest.mark.parametrize("part", ["SourceSpec", "TunnelSpec"])
def test_a_connectors_keys_stand_beside_its_name(schema, part):
    by_name = {each["title"]: each for each in schema["$defs"][part]["anyOf"]}
    files = by_name["files"]
    assert files["properties"]["connector"]["const"] == "files"
    assert {"path", "rows", "byName"} <= files["properties"].keys()
    assert "connector" in files["required"]


def test_the_default_tunnel_need_not_be_named(schema):
    by_name = {each["title"]: each for each in schema["$defs"]["TunnelSpec"]["anyOf"]}
    assert by_name["embedded"]["required"] == []
    assert {"compression", "outbox"} <= by_name["embedded"]["properties"].keys()


def test_a_task_is_named_in_exactly_one_way(schema):
    reference = schema["$defs"]["TaskReference"]
    assert list(reference["properties"]) == ["task", "file", "package"]
    ways = [each["required"] for each in reference["oneOf"]]
    assert ways == [["task"], ["file"], ["package"]]
    # the loader takes null for left out
    assert all(
        each["properties"] == {name: {"not": {"type": "null"}}}
        for each in reference["oneOf"]
        for name in each["required"]
    )


def test_a_model_is_a_file_or_a_function(schema):
    reference = schema["$defs"]["ModelReference"]
    assert list(reference["properties"]) == [
        "onnx", "backend", "threads", "batch", "file", "function",
    ]  # fmt: skip
    assert [each["required"] for each in reference["oneOf"]] == [["function"], ["onnx"]]
    models = schema["$defs"]["PipelineSpec"]["properties"]["models"]
    assert "ModelReference" in json.dumps(models)


def test_engine_actors_are_described(schema):
    engine = schema["$defs"]["EngineSpec"]
    assert list(engine["properties"]) == ["actors", "cpus", "gpus", "threads", "inFlight"]
    assert engine["required"] == ["actors"]
    assert all(each["description"] for each in engine["properties"].values())
    assert "EngineSpec" in json.dumps(schema["$defs"]["PipelineSpec"]["properties"]["engine"])


def test_without_connectors_any_source_is_allowed():
    (source,) = json_schema({})["$defs"]["SourceSpec"]["anyOf"]
    assert source["additionalProperties"] is True


def test_keys_of_a_sink_of_dead_letters_stand_beside_its_name():
    found = json_schema(ConnectorModels())["$defs"]["DeadLettersSpec"]["anyOf"]
    kafka = {each["title"]: each for each in found}["kafka"]
    assert {"connector", "brokers", "topic", "tls", "maxBytes"} <= kafka["properties"].keys()
    assert {"connector", "brokers", "topic"} <= set(kafka["required"])
