"""Files that connectors name: a section without its files is named before anything is opened."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from walle_stream.errors import BrokerUnreachableError, SpecFileError
from walle_stream.spec.files import check_files


class Named:
    def __init__(self, problem=""):
        self.problem = problem

    def check_files(self):
        if self.problem:
            raise BrokerUnreachableError(self.problem)


@pytest.mark.parametrize("key", ["source", "tunnel", "deadLetters", "sinks.warehouse"])
def test_the_section_whose_file_is_missing_is_named(key):
    said = "`sasl.password` names a file that cannot be read"
    parts = dict.fromkeys(["source", "tunnel", "deadLetters", "sinks.warehouse"], Named())
    parts[key] = Named(said)
    source, tunnel, letters, sink = parts.values()
    loaded = SimpleNamespace(
        file=Path("p.yaml"),
        source=source,
        tunnel=tunnel,
        dead_letters=letters,
        sinks={"warehouse": sink},
    )
    with pytest.raises(SpecFileError) as caught:
        check_files(loaded)
    assert f"p.yaml: spec.{key}: {said}" in str(caught.value)


def test_connectors_without_files_are_passed_over():
    nothing = SimpleNamespace(
        file=Path("p.yaml"), source=object(), tunnel=None, dead_letters=None, sinks={"s": Named()}
    )
    check_files(nothing)
