"""Nothing that a script can reach outlives its run, and nothing there makes code of text."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.vm
HERE = Path(__file__).parent


def load(name: str) -> Any:
    spec = spec_from_file_location(f"isolation_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reviewed = load("reviewed")
OpenedVm = load("harness").OpenedVm


@pytest.fixture(scope="module")
def found() -> Any:
    with OpenedVm("walk", "look") as vm:
        yield vm.ask("look()")


@pytest.fixture(scope="module")
def tried() -> Any:
    with OpenedVm("walk", "look", "attempts") as vm:
        yield vm.ask("attempt()")


def test_what_a_script_meets_again_in_the_next_run_cannot_be_changed(found: Any) -> None:
    assert reviewed.unknown(found["lasting"], reviewed.LASTING) == []
    assert reviewed.unused(found["lasting"], reviewed.LASTING) == []


def test_what_the_library_keeps_between_runs_is_known(found: Any) -> None:
    assert reviewed.unknown(found["hidden"], reviewed.KEPT, reviewed.FIXED) == []


def test_what_makes_code_of_text_is_known(found: Any) -> None:
    assert reviewed.unknown(found["makers"], reviewed.CODE) == []


def test_what_sets_attributes_of_what_it_is_given_is_known(found: Any) -> None:
    assert reviewed.unknown(found["writers"], reviewed.WRITERS) == []


def test_no_class_of_the_library_makes_an_object(found: Any) -> None:
    assert found["ours"] == [["walle_guest.restricted._Type", "type"]]


def test_the_walk_goes_far(found: Any) -> None:
    nodes, lasting, places = found["counts"]
    assert nodes > 7_000
    assert lasting > 2_000
    assert places > 4_000


@pytest.mark.parametrize("road", ["stored", "out", "changers", "unguarded"])
def test_nothing_that_a_script_can_try_changes_what_is_not_its_own(road: str, tried: Any) -> None:
    assert tried[road] == []


HOLES = {
    "decimal.DecimalTuple._field_defaults = {}": "as_tuple()._field_defaults",
    "statistics.NormalDist.spare = []": "statistics.NormalDist.spare",
    "statistics.NormalDist.length = property(len)": "statistics.NormalDist.length",
    "json.dumps.__defaults__ = ({},)": "json.dumps(default 0)",
    "fractions._hash_algorithm = functools.lru_cache(fractions._hash_algorithm)": "_hash_",
    "re.RegexFlag._value2member_map_ = {1: []}": "RegexFlag._value2member_map_",
    "json.JSONEncoder.keep = lambda a, b: setattr(a, 'kept', b)": "JSONEncoder.keep",
    "copy.deepcopy.__defaults__ = (None, [])": "copy.deepcopy(default 1)",
}


def test_the_walk_finds_holes() -> None:
    with OpenedVm("walk", "look") as vm:
        vm.run("import copy, decimal, fractions, functools, json, re, statistics")
        vm.run("\n".join(HOLES))
        seen = vm.ask("look()")
    lines = [
        *reviewed.unknown(seen["lasting"], reviewed.LASTING),
        *reviewed.unknown(seen["hidden"], reviewed.KEPT, reviewed.FIXED),
        *reviewed.unknown(seen["writers"], reviewed.WRITERS),
    ]
    assert [place for place in HOLES.values() if not any(place in line for line in lines)] == []


TRIED_HOLES = {
    # what seals it holds the function that it hides
    "raw = vars(json.JSONEncoder)['__init__'].__closure__[1].cell_contents": "",
    "json.JSONEncoder.begin = lambda self: raw(self)": "json.JSONEncoder.begin",
    "type.__setattr__(json.JSONDecoder, '__init__', raw)": "vars(json.JSONDecoder)['__init__']",
    "json.loads.code = json.loads.__code__": "json.loads.code",
    "def rename(of): of.__kwdefaults__ = {}": "",
    "copy.copy.rename = rename": "copy.copy.rename",
    "guard = sys.modules['walle_guest.reading']": "",
    "guard.is_of_script = lambda of, ask=guard.is_of_script: of is json.dumps or ask(of)": (
        "json.dumps"
    ),
}


def test_the_attempts_find_holes() -> None:
    with OpenedVm("walk", "look", "attempts") as vm:
        vm.run("import copy, json, sys")
        vm.run("\n".join(TRIED_HOLES))
        found = {place for road in vm.ask("attempt()").values() for _, place in road}
    assert {place for place in TRIED_HOLES.values() if place} - found == set()
