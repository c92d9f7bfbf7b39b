"""One engine and one model in a process: answers how long it takes, on one thread.

``child.py ENGINE MODEL INPUTS.npz OUTPUTS.npz NAME ...``: loads the model, runs it, keeps
what it gives, and then, for each line with a count, runs it as often and answers
with the seconds. Runs on any Python that a peer has, with numpy and the peer alone.
"""

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

Arrays = Mapping[str, Any]
Run = Callable[[], Sequence[Any]]


def main() -> int:
    """Answer until the input ends."""
    # engines write to the standard output as they like: answers go where it led
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    engine, model, inputs, outputs, *names = sys.argv[1:]
    with np.load(inputs) as file:
        given = {name: _texts(file[name]) for name in file.files}
    began = time.perf_counter()
    run = {"walle": _walle, "onnxruntime": _onnxruntime, "mnn": _mnn}[engine](model, given, names)
    made = run()
    ready_s = time.perf_counter() - began
    np.savez(outputs, *_flat(made))
    print(json.dumps({"ready_s": ready_s}), file=answers, flush=True)
    for line in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(int(line)):
            run()
        taken = {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}
        print(json.dumps(taken), file=answers, flush=True)
    return 0


def _texts(data: Any) -> Any:
    # a file has texts of a fixed width, engines want objects
    return data.astype(object) if data.dtype.kind == "U" else data


def _flat(made: Iterable[Any]) -> Iterator[Any]:
    """Give the arrays of any outputs: a map's keys and values, a sequence's elements."""
    for each in made:
        if isinstance(each, Mapping):
            yield from (np.array(list(each)), np.array(list(each.values())))
        elif isinstance(each, (list, tuple)):
            yield from _flat(each)
        else:
            array = np.asarray(each)
            yield array.astype(str) if array.dtype.kind == "O" else array


def _walle(model: str, given: Arrays, names: list[str]) -> Run:
    from walle_stream.engine import load  # noqa: PLC0415  # not for peers

    module = load(model)

    def run() -> Sequence[Any]:
        return list(module.run(given, names).values())

    return run


def _onnxruntime(model: str, given: Arrays, names: list[str]) -> Run:
    import onnxruntime  # noqa: PLC0415  # a peer's

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(names, given)


def _mnn(model: str, given: Arrays, names: list[str]) -> Run:
    import _tools  # noqa: PLC0415  # the command mnnconvert installs packages by itself
    import MNN  # noqa: PLC0415  # a peer's

    converted = model + ".mnn"
    arguments = ["-f", "ONNX", "--modelFile", model, "--MNNModel", converted, "--bizCode", "bench"]
    _tools.mnnconvert(["mnnconvert", *arguments])
    settings = {"backend": "CPU", "numThread": 1, "precision": "high"}
    runtime = MNN.nn.create_runtime_manager((settings,))
    module = MNN.nn.load_module_from_file(converted, list(given), names, runtime_manager=runtime)
    expr = MNN.expr
    # whole numbers are of 32 bits in MNN
    held = [
        expr.const(
            data.astype(np.int32) if data.dtype.kind == "i" else data,
            list(data.shape),
            expr.NCHW,
            expr.int if data.dtype.kind == "i" else expr.float,
        )
        for data in given.values()
    ]

    def run() -> Sequence[Any]:
        made = module.forward(held)
        # convolutions lie in blocks of channels; reading is what computes
        return [np.array(expr.convert(each, expr.NCHW).read()) for each in made]

    return run


if __name__ == "__main__":
    raise SystemExit(main())
