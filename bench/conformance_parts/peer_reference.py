"""The evaluator that comes with ONNX, on a case, in its own process."""

from onnx.reference import ReferenceEvaluator

from conformance_parts.exchange import Question, Value
from conformance_parts.onnx_arrays import received, sent


def evaluate(question: Question) -> list[list[Value]]:
    """Run a case."""
    evaluator = ReferenceEvaluator(question.model)
    made = []
    for inputs in question.sets:
        feeds = {name: received(value) for name, value in zip(question.inputs, inputs, strict=True)}
        made.append([sent(each) for each in evaluator.run(question.outputs, feeds)])
    return made
