"""The evaluator that comes with ONNX, on a case, in its own process."""

from typing import Any

from onnx.reference import ReferenceEvaluator

from conformance_parts.exchange import Question, Value
from conformance_parts.onnx_arrays import known_array, known_tensor


def evaluate(question: Question) -> list[list[Value]]:
    """Run a case."""
    evaluator = ReferenceEvaluator(question.model)
    made = []
    for inputs in question.sets:
        feeds = {name: _given(value) for name, value in zip(question.inputs, inputs, strict=True)}
        made.append([_found(each) for each in evaluator.run(question.outputs, feeds)])
    return made


def _given(value: Value) -> Any:
    if isinstance(value, list):
        return [None if each is None else known_array(each) for each in value]
    return None if value is None else known_array(value)


def _found(value: Any) -> Value:
    if isinstance(value, (list, tuple)):
        return [None if each is None else known_tensor(each) for each in value]
    return None if value is None else known_tensor(value)
