"""The release service's benchmark: a quick one from end to end, and what it says of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

for _name in ("httptools", "starlette", "uvicorn", "uvloop"):
    pytest.importorskip(_name, reason="the extra `deploy` is not installed")


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "release.json"
    command = [sys.executable, str(ROOT / "bench/release.py"), "--quick", "--trial"]
    small = ["--seconds", "0.2", "--fleet", "500", "--devices", "2000", "--decisions", "200"]
    done = subprocess.run(
        [*command, *small, "--json", str(path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text()), done


def test_each_load_has_answers_and_the_floor_stands_beside(measured):
    (found,) = measured[0]["rounds"]
    for name in ("floor", "nothing", "nothing_open", "steady_nothing", "past"):
        assert found[name]["by_status"]["204"]["count"] > 0
        assert set(found[name]["by_status"]) <= {"204", "503"}
    for name in ("push", "push_open", "report", "relay", "page"):
        assert set(found[name]["by_status"]) == {"200"}
    for name in ("floor", "nothing", "nothing_open"):
        assert set(found[name]["by_status"]) == {"204"}
    assert measured[0]["contended"][0].keys() == found.keys()


def test_a_known_device_adds_no_row_and_a_new_one_as_many_with_any_number_known(measured):
    for store in ("sqlite", "postgresql"):
        found = [each for each in measured[0]["reports"] if each["store"] == store]
        assert [each["known_rows"] for each in found] == [0, 0, 0]
        assert [each["fresh_rows"] for each in found] == [4, 4, 4]


def test_decisions_and_memory_have_figures(measured):
    result = measured[0]
    assert [each["releases"] for each in result["decisions"]] == [1, 10, 100, 1_000, 1_000]
    assert result["memory"]["known"] == 2_000
    assert {bar["note"] for bar in result["bars"]} >= {"a trial on a busy machine"}


def test_the_report_has_its_tables(measured, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import report  # noqa: PLC0415 - of the bench's folder

    text = "\n".join(report.release_lines(measured[0]))
    assert "nothing new (204)" in text
    assert "A TRIAL on a busy machine" in text
