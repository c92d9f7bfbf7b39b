"""The fuzz itself: what it makes is the same each time, and what it finds it names."""

import sys
import warnings
from random import Random

import numpy as np
import pytest
from onnx import ModelProto

from walle_stream.engine import module
from walle_stream.engine.backends import backend_named
from walle_stream.engine.inputs import checked_inputs
from walle_stream.engine.onnx.importer import parse_model
from walle_stream.testing.onnx import fuzz, fuzz_worker
from walle_stream.testing.onnx.input_mutations import mutate_inputs
from walle_stream.testing.onnx.mutations import mutate_bytes, mutate_structure
from walle_stream.testing.onnx.small_models import fill_folder, small_cases


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "outer" / "model"
    made.mkdir(parents=True)
    fill_folder(made)
    return made


@pytest.mark.parametrize("case", small_cases(), ids=lambda each: each.name)
def test_small_models_run_before_they_are_broken(case, folder):
    model = parse_model(case.model, folder=folder)
    given = dict(zip(model.graph.inputs, case.sets[0][0], strict=True))
    runner = module.GraphRunner(model.graph, model.functions, backend_named("numpy"))
    assert all(np.asarray(each).size for each in runner.run(checked_inputs(model.graph, given)))


def test_a_mutation_is_the_same_each_time():
    first, second = small_cases()[0].model, small_cases()[3].model

    def made(seed):
        proto, other = ModelProto(), ModelProto()
        proto.ParseFromString(first)
        other.ParseFromString(second)
        kinds = [mutate_structure(Random(seed + at), proto, other) for at in range(9)]
        return (
            kinds,
            proto.SerializeToString(deterministic=True),
            mutate_bytes(Random(seed), first, second),
        )

    assert made(3) == made(3) != made(4)


def test_inputs_are_changed_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(300):
            given = [
                ("x", np.ones((2, 3), np.float32)),
                ("y", np.array(["a"], object)),
                ("z", [np.zeros(2)]),
            ]
            assert mutate_inputs(Random(seed), given)


def mutation(**changed):
    case = small_cases()[0]
    inputs = list(zip(("count", "go", "x"), case.sets[0][0], strict=True))
    return fuzz_worker.Mutation(
        **{"case": "loop", "model": case.model, "inputs": inputs, "backend": "numpy", **changed}
    )


def test_a_mutation_runs_or_is_refused(folder):
    assert fuzz_worker.run_mutation(mutation(), folder)["outcome"] == "ran"
    found = fuzz_worker.run_mutation(mutation(model=b"no model"), folder)
    assert (found["outcome"], found["key"]) == ("refused", "ModelError")


def test_another_exception_is_a_finding_with_its_place(folder, monkeypatch):
    monkeypatch.setattr(module.Stage, "piece", lambda *_: next(iter([])))
    found = fuzz_worker.run_mutation(mutation(), folder)
    assert found["outcome"] == "finding"
    assert found["key"].startswith("StopIteration at ")
    assert "StopIteration" in found["text"]


def test_a_report_goes_on_where_it_ended(tmp_path):
    report = fuzz.Report("1")
    report.take(
        {"number": 7, "outcome": "finding", "key": "k", "case": "c", "changes": ["a"], "text": "t"}
    )
    report.take(
        {
            "number": 8,
            "outcome": "refused",
            "key": "ModelError",
            "case": "c",
            "changes": [],
            "text": "t",
        }
    )
    fuzz.write_report(report, tmp_path / "report")
    again = fuzz.read_report(tmp_path / "report", "1")
    assert again == report
    assert again.next == 9
    with pytest.raises(ValueError, match="another seed"):
        fuzz.read_report(tmp_path / "report", "2")


WORKER = """
import json, os, sys, time
*_, first, count = sys.argv
for number in range(int(first), int(count)):
    print(json.dumps({"begins": number}), flush=True)
    if number == 1:
        os.abort()
    if number == 3:
        time.sleep(600)
    print(json.dumps({"number": number, "outcome": "ran", "key": "", "case": "", "changes": [], "text": ""}), flush=True)
"""


def test_what_ends_or_holds_a_child_is_a_finding(tmp_path, monkeypatch):
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    interpreter = tmp_path / "python"
    interpreter.write_text(f'#!/bin/sh\nshift 2\nexec {sys.executable} {script} "$@"\n')
    interpreter.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(interpreter))
    monkeypatch.setattr(fuzz, "SECONDS_MAX", 2.0)
    report = fuzz.Report("1")
    fuzz.fuzz(tmp_path / "cases", report, 5)
    assert report.outcomes == {"ran": 3, "finding": 2}
    ended, hung = report.findings.values()
    assert (ended.numbers, hung.numbers) == ([1], [3])
    assert [key.split()[0] for key in report.findings] == ["ends", "hangs"]
    assert report.next == 5
