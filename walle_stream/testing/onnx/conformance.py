"""Count of the cases that the engine passes: ``python -m walle_stream.testing.onnx.conformance``.

This process cannot load another evaluator: a finder before all others refuses them before the
engine is imported.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

FORBIDDEN: Final = ("onnx.reference", "onnx.backend.test", "onnxruntime", "torch", "MNN", "jax",
                    "tensorflow", "openvino", "tinygrad", "tvm")  # fmt: skip
"""Modules that evaluate tensors, and ONNX's own test module, which loads an evaluator."""


class NoOtherEngine:
    """Finder that refuses evaluators; the first in ``sys.meta_path``."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Find no module, so that the other finders look.

        Raises:
            ModuleNotFoundError: The module is in ``FORBIDDEN``.
        """
        del path, target
        if any(name == each or name.startswith(f"{each}.") for each in FORBIDDEN):
            raise ModuleNotFoundError(f"{name} must not be loaded here", name=name)


@dataclass(slots=True)
class Tally:
    """Counts of a run over cases."""

    passed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Passed cases by subset."""
    total: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    failed: dict[str, str] = field(default_factory=dict)
    """Reasons of failures by name of the case."""
    seconds: float = 0.0


def run_cases(
    path: Path, backend: str, words: Sequence[str] = (), *, is_raw: bool = False
) -> Tally:
    """Run cases.

    Args:
        path: File of cases, see ``testing.onnx.cases``.
        backend: Name of a backend of the engine, toy, checked or cupy-stand-in.
        words: Parts of names to select cases; empty for all cases.
        is_raw: Whether to store constants as bytes first.

    Returns:
        The counts.
    """
    from walle_stream.engine.onnx.backend import EngineRep  # noqa: PLC0415  # after the finder
    from walle_stream.engine.onnx.importer import parse_model  # noqa: PLC0415  # same
    from walle_stream.errors import WalleError  # noqa: PLC0415  # same
    from walle_stream.testing.onnx.cases import read_cases  # noqa: PLC0415  # same
    from walle_stream.testing.onnx.comparison import difference  # noqa: PLC0415  # same
    from walle_stream.testing.onnx.raw_constants import with_raw_constants  # noqa: PLC0415  # same
    from walle_stream.testing.onnx.subsets import subsets_of  # noqa: PLC0415  # same
    from walle_stream.testing.stages import verify_model  # noqa: PLC0415  # same

    tally = Tally()
    chosen = _backend(backend)
    start = time.perf_counter()
    for case in read_cases(path):
        if words and not any(each in case.name for each in words):
            continue
        try:
            model = with_raw_constants(case.model) if is_raw else case.model
            if backend == CHECKED:
                verify_model(parse_model(model))
            ready = EngineRep(parse_model(model), chosen)
            reason = ""
            for inputs, outputs in case.sets:
                reason = reason or difference(outputs, ready.run(inputs), case.rtol, case.atol)
        except WalleError as error:
            reason = f"{type(error).__name__}: {error}"
        except Exception as error:  # noqa: BLE001  # a traceback is a failure, not the end
            reason = f"NOT OURS {type(error).__name__}: {error}"
        for each in subsets_of(case.kind, case.name, case.model):
            tally.total[each] += 1
            tally.passed[each] += not reason
        if reason:
            tally.failed[case.name] = reason
    tally.seconds = time.perf_counter() - start
    return tally


def _backend(name: str) -> Any:
    if name == TOY:
        from walle_stream.testing.toy.backend import ToyBackend  # noqa: PLC0415  # after the finder

        return ToyBackend()
    if name == CHECKED:
        from walle_stream.testing.checked_backend import CheckedBackend  # noqa: PLC0415  # same

        return CheckedBackend()
    if name == CUPY_STAND_IN:
        from walle_stream.engine.backends.cupy import CupyBackend  # noqa: PLC0415  # same
        from walle_stream.testing.cupy_stand_in import stand_in  # noqa: PLC0415  # same

        return CupyBackend(stand_in())
    from walle_stream.engine.backends import backend_named  # noqa: PLC0415  # same

    return backend_named(name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        0 if every bar is met, else 1.
    """
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__)
    parser.add_argument("words", nargs="*", help="run cases whose names contain one of these")
    known = f"reference, numpy, cupy, {TOY}, {CHECKED} or {CUPY_STAND_IN}"
    parser.add_argument("--backend", default="numpy", help=known)
    parser.add_argument(
        "--cases", type=Path, help="file of cases, written if missing; default: a temporary file"
    )
    parser.add_argument("--json", type=Path, help="write counts and reasons to this file")
    parser.add_argument(
        "--raw", action="store_true", help="store constants as bytes, as exporters do"
    )
    parser.add_argument("--failed", action="store_true", help="print the reason of each failure")
    given = parser.parse_args(arguments)
    sys.meta_path.insert(0, NoOtherEngine())
    with tempfile.TemporaryDirectory() as folder:
        path = given.cases or Path(folder) / "cases.zip"
        if not path.exists():
            made = [sys.executable, "-W", "ignore", "-m", "walle_stream.testing.onnx.cases"]
            subprocess.run([*made, str(path)], check=True, capture_output=True)  # noqa: S603
        tally = run_cases(path, given.backend, given.words, is_raw=given.raw)
    for subset, total in tally.total.items():
        print(f"{subset:20} {tally.passed[subset]:5} of {total}")  # noqa: T201  # a command
    if given.failed:
        for name, reason in tally.failed.items():
            print(f"  {name}: {reason}")  # noqa: T201  # a command
    if given.json:
        given.json.write_text(json.dumps(_report(tally, given.backend), indent=1) + "\n")
    return 0 if given.words or is_met(tally, given.backend) else 1


BARS: Final = {
    "paper": (415, 415), "core": (1240, 1252), "node": (1700, 1884), "pytorch-converted": (82, 82),
    "pytorch-operator": (35, 35), "simple": (21, 23), "real": (9, 9),
}  # fmt: skip
"""Least number of passed cases and number of all cases, by subset."""

CUPY_STAND_IN: Final = "cupy-stand-in"
"""The cupy backend over numpy, for machines without a GPU; not a backend of the engine."""

CHECKED: Final = "checked"
"""The numpy backend with checks of its stages."""

TOY: Final = "toy"
TOY_BARS: Final = {"toy": (897, 944)}
"""Bars of the toy backend, which is too slow for the other subsets: 95 % of the cases that lowering
turns into rasters and atomic operators."""


def bars_of(backend: str) -> Mapping[str, tuple[int, int]]:
    """Return a backend's bars by subset: least number of passed cases, number of all cases."""
    return TOY_BARS if backend == TOY else BARS


def is_met(tally: Tally, backend: str) -> bool:
    """Return whether every subset has its expected size and enough passed cases."""
    return all(
        tally.total[subset] == total and tally.passed[subset] >= least
        for subset, (least, total) in bars_of(backend).items()
    )


def _report(tally: Tally, backend: str) -> dict[str, Any]:
    bars = bars_of(backend)
    return {
        "format": 1,
        "backend": backend,
        "versions": {each: version(each) for each in ("onnx", "numpy", "walle-stream")},
        "python": sys.version.split()[0],
        "subsets": {
            each: {"passed": tally.passed[each], "total": total, "bar": bars.get(each, (0,))[0]}
            for each, total in tally.total.items()
        },
        "failed": tally.failed,
        "seconds": round(tally.seconds, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
