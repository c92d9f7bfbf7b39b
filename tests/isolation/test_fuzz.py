"""The short form of ``make fuzz-guest``, and whether it would find a hole."""

import json
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
CHUNK = 500


def load() -> Any:
    spec = spec_from_file_location("isolation_fuzz", HERE / "fuzz.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("count", [400, pytest.param(2_000, marks=pytest.mark.full)])
def test_random_programs_of_two_devices_see_nothing_of_each_other(
    count: int, tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    command = [sys.executable, HERE / "fuzz.py", "--count", str(count), "--json", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(path.read_text())
    assert report["count"] + len(report["ended"]) == count
    assert len(report["ended"]) < count // 100


HOLES = {
    "a default": (
        "import decimal; decimal.DecimalTuple._field_defaults = {}",
        "decimal.Decimal(1).as_tuple()._field_defaults['a'] = 1",
    ),
    "slots": (
        "import statistics; statistics.NormalDist.__slots__ = {'_mu': 1}",
        "statistics.NormalDist.__slots__['a'] = 1",
    ),
    "a flag": (
        "import re; re.RegexFlag._value2member_map_ = dict(re.RegexFlag._value2member_map_)",
        "re.RegexFlag(own(Int, 1 << 40))",
    ),
    "an attribute": (
        "import json\ndef default(self, o): json.dumps.kept = o\njson.JSONEncoder.default = default",
        "json.JSONEncoder().default(own(Text, 'a'))",
    ),
    "code": (
        "import walle_guest.sealing as s, typing; s.TEXT_WINDOW[0] = 1",
        "values.append(1)",
    ),
}

# each writes to an object of the library, where nothing holds it back
WRITERS = """
def rooted(base):
    class Made(base, _root=True): pass
    return Made

def write(one):
    for writer in (
        lambda: functools.wraps(one())(Plain()).__init__(json.dumps, 1),
        lambda: super(make(one()), make(one())).__init__(json.dumps, 1),
        lambda: super(type(one()), one()).__init__(int, 2),
        lambda: setattr(rooted(type(one()))(json.dumps, (int,)), 'secret', 1),
        lambda: one().__init__(json.dumps, 1),
    ):
        try: writer()
        except Exception as error: values.append(type(error).__name__)
"""


@pytest.mark.vm
def test_nothing_that_takes_any_object_writes_to_one_of_the_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    fuzz = load()
    player = fuzz.Player()
    steps = [f"write(lambda: {each})" for each in player.lasting]
    try:
        for at in range(0, len(steps), CHUNK):
            code = fuzz.compiled(WRITERS + fuzz.source(steps[at : at + CHUNK]))
            assert code is not None
            player.played(player.used, (code, "a"))
        assert player.kept() == []
    finally:
        player.close()


KEEPERS = {"a flag": "RegexFlag._value2member_map_", "an attribute": "json.dumps"}


@pytest.mark.vm
@pytest.mark.parametrize("hole", HOLES)
def test_a_hole_is_found_and_its_program_shrunk(hole: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    opened, step = HOLES[hole]
    fuzz = load()
    player = fuzz.Player(opened)
    monkeypatch.setattr(
        player,
        "steps",
        lambda seed: ["values.append(1)", step] if seed < 2**32 else ["values.append(2)"],
    )
    try:
        failure, kept = player.look(1), player.kept()
    finally:
        player.close()
    if hole in KEEPERS:  # the probe does not meet what they leave
        assert any(KEEPERS[hole] in each for each in kept)
    else:
        assert failure is not None
        assert len(failure.steps) == 1 or hole == "code"
