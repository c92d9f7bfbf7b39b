"""MNN on a case, in its own process: converted by its own converter, run as a module."""

import tempfile
from pathlib import Path
from typing import Any

import _tools  # the command mnnconvert installs packages by itself
import MNN
import numpy as np

from conformance_parts.exchange import Question, Tensor, Value
from conformance_parts.plain_arrays import array_of, tensor_of

_expr = MNN.expr


def evaluate(question: Question) -> list[list[Value]]:
    """Run a case.

    Args:
        question: ``attempt`` is ``optimised``, ``plain`` or ``fixed`` (shapes); floats are
            float32 and other numbers whole ones.

    Raises:
        ValueError: The converter makes no model, or a value is no tensor.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, converted = Path(folder) / "model.onnx", Path(folder) / "model.mnn"
        source.write_bytes(question.model)
        arguments = ["-f", "ONNX", "--modelFile", str(source), "--MNNModel", str(converted)]
        arguments += ["--bizCode", "bench"]
        if question.attempt == "plain":
            arguments += ["--optimizeLevel", "0"]
        _tools.mnnconvert(["mnnconvert", *arguments])
        if not converted.exists():
            raise ValueError("its converter makes no model of it")
        known = _declared(converted)
        names = [each for each in question.inputs if known is None or each in known]
        settings = {"backend": "CPU", "numThread": 1, "precision": "high"}
        runtime = MNN.nn.create_runtime_manager((settings,))
        module = MNN.nn.load_module_from_file(
            str(converted),
            names,
            question.outputs,
            runtime_manager=runtime,
            shape_mutable=question.attempt != "fixed",
        )
    made = []
    for values in question.sets:
        given = dict(zip(question.inputs, values, strict=True))
        held = [_held(given[name], known[name] if known else None) for name in names]
        made.append([_found(each) for each in module.forward(held)])
    return made


def _declared(converted: Path) -> dict[str, Any] | None:
    """Give the dtypes of the inputs that the converted model has; None where it does not say."""
    try:
        inputs, _ = _expr.get_inputs_and_outputs(_expr.load_as_dict(str(converted)))
        return {name: each.dtype for name, each in inputs.items()}
    except Exception:  # noqa: BLE001  # it raises what it likes
        return None


def _held(value: Value, declared: Any) -> Any:
    if not isinstance(value, Tensor) or value.texts is not None:
        raise ValueError("its modules take tensors of numbers alone")
    array = array_of(value)
    kinds = {
        _expr.float: np.float32, _expr.int: np.int32, _expr.uint8: np.uint8, _expr.int8: np.int8
    }  # fmt: skip
    if declared not in kinds:
        by_dtype = {"f": _expr.float, "u": _expr.uint8, "i": _expr.int8}
        narrow = array.dtype.kind == "f" or array.dtype.itemsize == 1
        declared = by_dtype.get(array.dtype.kind, _expr.int) if narrow else _expr.int
    shape = list(array.shape)
    # arrays of int8 it refuses, the same bytes it takes
    return _expr.const(array.astype(kinds[declared]).tobytes(), shape, _expr.NCHW, declared)


def _found(made: Any) -> Value:
    if 0 in made.shape:
        # of what is empty there is nothing that it could compute wrong, but it refuses to read it
        return tensor_of(np.zeros(made.shape, np.float32))
    # convolutions lie in blocks of channels; reading is what computes
    if made.data_format != _expr.NCHW:
        made = _expr.convert(made, _expr.NCHW)
    return tensor_of(np.array(made.read()))
