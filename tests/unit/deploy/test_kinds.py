"""The platform's kinds of definitions, as editors and ``walle validate`` know them."""

from pathlib import Path

import pytest

from walle_stream.app.validation import validate_file
from walle_stream.errors import SpecFileError
from walle_stream.spec.connectors import ConnectorModels, further_kinds
from walle_stream.spec.schema import json_schema

WALK = Path(__file__).resolve().parents[3] / "configs/walk"
KINDS = {"Alarms", "DeviceKinds", "Policy", "Release", "ReleaseService", "TaskFiles"}


@pytest.mark.parametrize(
    ("name", "kind"), [("v1", "Release"), ("v3", "Release"), ("kinds", "DeviceKinds")]
)
def test_the_walks_definitions_are_valid(name, kind):
    assert validate_file(WALK / f"{name}.yaml")["kind"] == kind


def test_what_is_wrong_in_one_has_its_place(tmp_path):
    text = (WALK / "v1.yaml").read_text().replace("percent: 5,", "percent: 500,")
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(SpecFileError, match=r"r\.yaml:\d+:\d+: spec\.gray\[0\]\.percent"):
        validate_file(tmp_path / "r.yaml")


def test_the_schema_has_them():
    kinds = further_kinds()
    assert kinds.keys() >= KINDS
    schema = json_schema(ConnectorModels(), kinds.values())
    assert len(schema["oneOf"]) == 2 + len(kinds)
    assert {"Release", "DeviceKinds"} <= schema["$defs"].keys()
