"""The cases of ``onnx.backend.test`` in one file, so that they run without that package.

ONNX makes its cases with its own evaluator loaded, but the process that runs them must not be able
to load an evaluator. So a child process writes the cases (``python -m
walle_stream.testing.onnx.cases FILE``), and this module reads them back. The file is a zip of
models and tensors in protobuf, the format of ONNX's own test data.
"""

import os
import sys
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import onnx
from onnx import numpy_helper

KINDS: Final = ("node", "simple", "pytorch-operator", "pytorch-converted", "real")

_PARTS: Final = {
    "tensor": (onnx.TensorProto, numpy_helper.to_array),
    "sequence": (onnx.SequenceProto, numpy_helper.to_list),
    "optional": (onnx.OptionalProto, numpy_helper.to_optional),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A model with inputs and wanted outputs."""

    kind: str
    name: str
    model: bytes
    sets: tuple[tuple[tuple[Any, ...], tuple[Any, ...]], ...]
    """Pairs of inputs and outputs, one for each data set of the case."""
    rtol: float
    atol: float


def read_cases(path: Path) -> Iterator[Case]:
    """Read the cases of a file.

    Args:
        path: File of ``write_cases``.

    Yields:
        Cases in the order of their kinds, then in ONNX's order.
    """
    with zipfile.ZipFile(path) as archive:
        folders: dict[str, list[str]] = {}
        for each in archive.namelist():
            folder, _, name = each.rpartition("/")
            folders.setdefault(folder, []).append(name)
        for folder, names in folders.items():
            kind, name, rtol, atol = folder.split("/")
            sets: dict[str, dict[str, list[Any]]] = {}
            for each in names:
                if each == "model":
                    continue
                number, side, _, part = each.split("-")
                value = _value(part, archive.read(f"{folder}/{each}"))
                sets.setdefault(number, {"in": [], "out": []})[side].append(value)
            data = tuple((tuple(each["in"]), tuple(each["out"])) for each in sets.values())
            yield Case(kind, name, archive.read(f"{folder}/model"), data, float(rtol), float(atol))


def _value(part: str, data: bytes) -> Any:
    if part == "none":
        return None
    make, read = _PARTS[part]
    proto = make()
    proto.ParseFromString(data)
    return read(proto)


def write_cases(path: Path) -> int:
    """Write all cases of the installed ``onnx``.

    Args:
        path: The file, which is replaced atomically.

    Returns:
        Number of cases.
    """
    count = 0
    part = path.with_name(f"{path.name}.{os.getpid()}")
    with zipfile.ZipFile(part, "w") as archive:
        for kind in KINDS:
            for case in _published(kind):
                folder = f"{kind}/{case.name}/{case.rtol}/{case.atol}"
                archive.writestr(f"{folder}/model", case.model)
                for number, (inputs, outputs) in enumerate(case.sets):
                    for side, values in (("in", inputs), ("out", outputs)):
                        for place, value in enumerate(values):
                            kind_of, data = _stored(value)
                            archive.writestr(f"{folder}/{number}-{side}-{place}-{kind_of}", data)
                count += 1
    part.replace(path)
    return count


def _stored(value: Any) -> tuple[str, bytes]:
    if value is None:
        return "none", b""
    if isinstance(value, onnx.TensorProto):
        return "tensor", value.SerializeToString()
    if isinstance(value, (list, tuple)):
        return "sequence", numpy_helper.from_list(list(value)).SerializeToString()
    return "tensor", numpy_helper.from_array(value).SerializeToString()


def _published(kind: str) -> Iterator[Case]:
    from onnx.backend.test.loader import load_model_tests  # noqa: PLC0415  # loads its evaluator

    for each in load_model_tests(kind=kind):
        if each.model is not None:
            model, sets = each.model.SerializeToString(), tuple(each.data_sets or ())
        elif each.url:
            model, sets = _light(each)
        else:
            folder = Path(each.model_dir or "")
            model = (folder / "model.onnx").read_bytes()
            sets = tuple(_data_set(each, model) for each in sorted(folder.glob("test_data_set*")))
        yield Case(kind, each.name, model, sets, each.rtol, each.atol)


def _data_set(folder: Path, model: bytes) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    graph = onnx.load_model_from_string(model).graph
    sides = []
    for name, values in (("input", graph.input), ("output", graph.output)):
        files = sorted(folder.glob(f"{name}_*.pb"), key=lambda each: int(each.stem.split("_")[1]))
        sides.append(
            tuple(
                _value(_part_of(value.type), file.read_bytes())
                for file, value in zip(files, values, strict=False)
            )
        )
    return sides[0], sides[1]


def _part_of(kind: Any) -> str:
    return str(kind.WhichOneof("value")).removesuffix("_type")


def _light(case: Any) -> tuple[bytes, Any]:
    """Return a light net with the inputs of ONNX's runner and their outputs."""
    from onnx.backend.test.runner import Runner  # noqa: PLC0415  # loads its evaluator

    path = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    file = path / Path(case.url).name
    model = onnx.load(file)
    constants = {each.name for each in model.graph.initializer}
    inputs = tuple(
        Runner.generate_dummy_data(each, seed=0, name=case.model_name, random=False)
        for each in model.graph.input
        if each.name not in constants
    )
    outputs = []
    for number in range(len(model.graph.output)):
        data = (path / f"{file.stem}_output_{number}.pb").read_bytes()
        outputs.append(_value("tensor", data))
    return model.SerializeToString(), ((inputs, tuple(outputs)),)


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        print(write_cases(Path(sys.argv[1])))  # noqa: T201  # the caller reads the number
