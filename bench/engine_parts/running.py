"""Children that run one model each, and the rounds in which they take turns."""

import json
import math
import os
import subprocess
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from peers_parts.running import ROOT
from vm_parts.measuring import quartiles, say

from engine_parts.contenders import ONNXRUNTIME, OURS

type Runners = Mapping[str, Path]
"""By contender, its Python."""

_ONE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)


class ChildError(Exception):
    """A contender cannot run a model."""


class Files(NamedTuple):
    """Files and names that child processes get."""

    model: Path
    inputs: Path
    outputs: tuple[str, ...]
    """Names."""


class Child:
    """A process that has loaded a model."""

    def __init__(self, name: str, python: Path, files: Files) -> None:
        """Start; blocks until the model was run once.

        Raises:
            ChildError: It cannot run it.
        """
        self._made = files.inputs.with_name(f"{name}.npz")
        # a file, as nobody reads while the child talks
        self._said = files.inputs.with_name(f"{name}.log")
        script = str(Path(__file__).with_name("child.py"))
        command = [str(python), script, name, str(files.model), str(files.inputs)]
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [*command, str(self._made), *files.outputs],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                env=_surroundings(is_ours=name == OURS.name),
            )
        try:
            self.ready_s: float = self._answer()["ready_s"]
        except ChildError:
            self.close()
            raise

    def __enter__(self) -> Self:
        """Be closed at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def outputs(self) -> list[NDArray[Any]]:
        """Give what it made at first."""
        with np.load(self._made) as file:
            return [file[name] for name in file.files]

    def run(self, count: int) -> dict[str, float]:
        """Run the model; blocks.

        Returns:
            ``cpu_ms`` and ``wall_ms`` of one run.
        """
        try:
            self._process.stdin.write(f"{count}\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise ChildError(self._last_words()) from error
        taken = self._answer()
        return {f"{kind}_ms": taken[f"{kind}_s"] * 1e3 / count for kind in ("cpu", "wall")}

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _answer(self) -> dict[str, float]:
        line = self._process.stdout.readline()
        if not line:
            raise ChildError(self._last_words())
        return json.loads(line)

    def _last_words(self) -> str:
        code = self._process.wait()
        lines = self._said.read_text("utf-8", "replace").strip().splitlines() or ["no message"]
        return f"exit code {code}: {lines[-1][:400]}"


def _surroundings(*, is_ours: bool) -> dict[str, str]:
    given = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    if is_ours:
        given["PYTHONPATH"] = os.pathsep.join(
            str(ROOT / name) for name in ("", "connectors", "deploy")
        )
    return {**given, **_ONE_THREAD}


type Made = Mapping[str, list[NDArray[Any]]]
"""By contender, its outputs."""


def differences(made: Made) -> dict[str, float]:
    """Give ``max|a - b| / max|b|`` of the worst output, where b is onnxruntime's."""
    wanted = made.get(ONNXRUNTIME.name)
    if wanted is None:
        return {}
    return {
        name: max(map(difference, arrays, wanted))
        for name, arrays in made.items()
        if arrays is not wanted
    }


def measured(
    files: Files,
    runners: Runners,
    rounds: int,
    target_s: float,
    compare: Callable[[Made], dict[str, Any]] = differences,
) -> dict[str, Any]:
    """Let all run one model, round by round in turns.

    Args:
        files: The model, its inputs, its outputs' names.
        runners: The Python of each contender.
        rounds: How often everyone runs it.
        target_s: Seconds of a turn.
        compare: What ``difference`` is, by contender.

    Returns:
        Figures of each contender, ratios of ours to theirs, differences of what they
        give, and why who could not run it.
    """
    failed: dict[str, str] = {}
    with ExitStack() as stack:
        children: dict[str, Child] = {}
        for name, python in runners.items():
            try:
                children[name] = stack.enter_context(Child(name, python, files))
            except ChildError as error:
                failed[name] = str(error)
                say(f"{name} does not run it: {error}")
        difference = compare({name: each.outputs() for name, each in children.items()})
        # the first run after the one that planned shows how many fit into a turn
        counts = {
            name: max(1, math.ceil(target_s * 1e3 / each.run(1)["wall_ms"]))
            for name, each in children.items()
        }
        names, taken = list(children), []
        for number in range(rounds if names else 0):
            turn = number % len(names)
            order = [*names[turn:], *names[:turn]]
            taken.append({name: children[name].run(counts[name]) for name in order})
            shown = ", ".join(f"{name} {taken[-1][name]['cpu_ms']:.2f}" for name in names)
            say(f"  round {number + 1}: ms of CPU: {shown}")
        figures = {
            name: {
                "ready_s": round(each.ready_s, 3),
                "runs_a_turn": counts[name],
                **{
                    kind: quartiles([costs[name][kind] for costs in taken], 4)
                    for kind in ("cpu_ms", "wall_ms")
                },
                "rounds": [costs[name] for costs in taken],
            }
            for name, each in children.items()
        }
    ratios = {
        name: quartiles([costs[OURS.name]["cpu_ms"] / costs[name]["cpu_ms"] for costs in taken])
        for name in figures
        if OURS.name in figures and name != OURS.name
    }
    return {"contenders": figures, "ratios": ratios, "difference": difference, "failed": failed}


def difference(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    """Give ``max|a - b| / max|b|``; infinite where shapes differ or something is not finite."""
    if found.shape != wanted.shape or not np.isfinite(found).all():
        return math.inf
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())
