"""Worker of ``testing.onnx.fuzz``: a process that runs mutated models one by one and may crash.

It writes two lines of JSON per mutation to its original standard output: one at the start, one with
the result. Output of the engine goes to a file and is a finding.
"""

import faulthandler
import json
import os
import resource
import sys
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import numpy as np
from onnx import ModelProto, numpy_helper

from walle_stream.engine.backends import backend_named
from walle_stream.engine.inputs import checked_inputs
from walle_stream.engine.limits import Limits
from walle_stream.engine.module import GraphRunner
from walle_stream.engine.onnx.importer import parse_model
from walle_stream.engine.values import Data, arrays_of
from walle_stream.errors import SpecError, WalleError
from walle_stream.testing.onnx.cases import Case, read_cases
from walle_stream.testing.onnx.input_mutations import Named, mutate_inputs
from walle_stream.testing.onnx.mutations import happens, mutate_bytes, mutate_structure
from walle_stream.testing.onnx.small_models import small_cases

LIMITS: Final = Limits(
    iterations=2000, nodes=1 << 13, steps=1 << 13, work=1 << 26, nbytes=1 << 28, seconds=5.0
)
MEMORY_BYTES: Final = 4 << 30
"""Limit of the address space; beyond it an allocation raises MemoryError."""

MESSAGE_MAX: Final = 2000
"""Largest acceptable length of an error message in characters."""

_MODEL_BYTES_MAX: Final = 1 << 20


@dataclass(slots=True)
class Mutation:
    """A mutated model with its inputs."""

    case: str
    model: bytes
    inputs: Named
    backend: str
    changes: list[str] = field(default_factory=list)
    is_twice: bool = False


class Corpus:
    """Cases to mutate."""

    def __init__(self, path: Path) -> None:
        """Read the cases.

        Args:
            path: File of cases, see ``testing.onnx.cases``.
        """
        self.published = [
            each for each in read_cases(path) if each.sets and len(each.model) <= _MODEL_BYTES_MAX
        ]
        self.small = small_cases()

    def mutation(self, seed: str, number: int) -> Mutation:
        """Return a mutation; equal arguments give equal mutations."""
        rng = Random(f"{seed}-{number}")  # noqa: S311  # no secret
        case, other = self._case(rng), self._case(rng)
        backend = "reference" if happens(rng, 20) else "numpy"
        given = list(rng.choice(case.sets)[0])
        proto = _parsed(case.model)
        names = [each.name for each in proto.graph.input]
        constants = {each.name for each in proto.graph.initializer}
        if len(given) < len(names):
            names = [each for each in names if each not in constants]
        made = Mutation(case.name, case.model, list(zip(names, given, strict=False)), backend)
        made.is_twice = happens(rng, 20)
        level = rng.choice(("bytes", *["structure"] * 3, "data", "data", "all"))
        if happens(rng, 20):
            made.changes.append("known inputs")
            _know(rng, proto, made)
        if level in {"structure", "all"}:
            theirs = _parsed(other.model)
            for _ in range(rng.choice((1, 1, 1, 2, 4))):
                made.changes.append(_structure(rng, proto, theirs))
        made.model = proto.SerializeToString()
        if level == "bytes" or (level == "all" and happens(rng, 30)):
            made.changes.append("bytes")
            made.model = mutate_bytes(rng, made.model, other.model)
        if level in {"data", "all"}:
            for _ in range(rng.choice((1, 1, 2))):
                made.changes.append(f"input {mutate_inputs(rng, made.inputs)}")
        return made

    def _case(self, rng: Random) -> Case:
        return rng.choice(self.small if happens(rng, 15) else self.published)


def _know(rng: Random, proto: ModelProto, made: Mutation) -> None:
    # constant inputs are folded during lowering, by other code
    kept = []
    for name, value in made.inputs:
        if isinstance(value, np.ndarray) and happens(rng, 70):
            proto.graph.initializer.append(numpy_helper.from_array(value, name))
        else:
            kept.append((name, value))
    made.inputs[:] = kept


def _parsed(data: bytes) -> ModelProto:
    proto = ModelProto()
    proto.ParseFromString(data)
    return proto


def _structure(rng: Random, proto: ModelProto, other: ModelProto) -> str:
    try:
        return mutate_structure(rng, proto, other)
    except (ValueError, TypeError) as error:
        # protobuf itself refuses some values
        return f"refused by protobuf: {type(error).__name__}"


def run_mutation(mutation: Mutation, folder: Path) -> dict[str, str]:
    """Read, prepare and run a mutated model.

    Returns:
        ``outcome``: ran, refused or finding; ``key`` and ``text`` have the reason.
    """
    try:
        model = parse_model(mutation.model, folder=folder)
        runner = GraphRunner(model.graph, model.functions, backend_named(mutation.backend), LIMITS)
        for _ in range(2 if mutation.is_twice else 1):
            made = runner.run(checked_inputs(model.graph, dict(mutation.inputs)))
            _look_at(made)
    except SpecError as error:
        return _finding(error)
    except WalleError as error:
        text = str(error)
        if "\n" in text or not text or len(text) > MESSAGE_MAX:
            return _finding(error)
        return {"outcome": "refused", "key": type(error).__name__, "text": text}
    except Exception as error:  # noqa: BLE001  # the fuzz looks for these
        return _finding(error)
    return {"outcome": "ran", "key": "", "text": ""}


def _look_at(values: list[Data]) -> None:
    for each in arrays_of(values):
        if not isinstance(each, np.ndarray):
            raise TypeError(f"an output is a {type(each).__name__}")


def _finding(error: BaseException) -> dict[str, str]:
    frames = [
        each for each in traceback.extract_tb(error.__traceback__) if "engine" in each.filename
    ]
    place = "nowhere"
    if frames:
        place = f"{'/'.join(Path(frames[-1].filename).parts[-2:])}:{frames[-1].lineno}"
    text = "".join(traceback.format_exception(error))
    return {"outcome": "finding", "key": f"{type(error).__name__} at {place}", "text": text[-4000:]}


def main() -> None:
    """Run mutations from FIRST to below COUNT; arguments: PATH FOLDER NOISE SEED FIRST COUNT."""
    path, folder, noise_path, seed, first, count = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    corpus = Corpus(Path(path))
    sys.setswitchinterval(1)
    results = os.fdopen(os.dup(1), "w", buffering=1)
    noise = Path(noise_path).open("w+b", buffering=0)  # noqa: SIM115  # until the process ends
    os.dup2(noise.fileno(), 1)
    os.dup2(noise.fileno(), 2)
    faulthandler.enable(noise)
    warnings.simplefilter("error")
    for number in range(int(first), int(count)):
        results.write(f'{{"begins": {number}}}\n')
        try:
            mutation = corpus.mutation(seed, number)
        except Exception as error:  # noqa: BLE001  # a bug of the fuzz, not of the engine
            results.write(json.dumps({"broken": "".join(traceback.format_exception(error))}) + "\n")
            return
        result = run_mutation(mutation, Path(folder))
        sys.stdout.flush()
        sys.stderr.flush()
        if noise.tell():
            noise.seek(0)
            text = noise.read().decode(errors="replace")
            result = {"outcome": "finding", "key": f"printed {text[:60]!r}", "text": text[-4000:]}
            noise.seek(0)
            noise.truncate()
        found = {"number": number, "case": mutation.case, "changes": mutation.changes, **result}
        results.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
