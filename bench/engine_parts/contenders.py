"""Who runs the models, and where."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from peers_parts.contenders import Contender
from peers_parts.environments import Environment, Missing, find_environment
from vm_parts.measuring import say

from engine_parts.executable_stack import clear_executable_stack

_PYTHONS: Final = ("3.14", "3.13", "3.12", "3.11")

OURS: Final = Contender("walle", "walle_stream.engine", note="numpy backend")
ONNXRUNTIME: Final = Contender(
    "onnxruntime",
    "onnxruntime",
    requirement="onnxruntime==1.32.0",
    pythons=_PYTHONS,
    note="CPUExecutionProvider; one thread within and between operators; what the others must give",
)
MNN: Final = Contender(
    "mnn",
    "MNN (AVX2)",
    requirement="MNN==3.6.1",
    pythons=_PYTHONS,
    note="its wheel is built for AVX2 alone, also where the machine has AVX-512; precision high; "
    "converted by its own mnnconvert",
)
CONTENDERS: Final = (OURS, ONNXRUNTIME, MNN)
"""In the order of the tables."""


def prepared(contender: Contender, folder: Path, *, may_install: bool) -> Environment | Missing:
    """Find or make the environment of a peer; blocks on the package index.

    Args:
        contender: The peer.
        folder: Where environments are.
        may_install: Whether to make a missing environment.

    Returns:
        The environment, or why there is none.
    """
    say(f"looking for {contender.requirement}")
    found = find_environment(contender, folder, may_install=may_install)
    if isinstance(found, Environment) and contender is MNN:
        for each in _objects_of(found.python.parent.parent):
            if clear_executable_stack(each):
                say(f"{each.name} asked for an executable stack, which it does not need")
    return found


def _objects_of(home: Path) -> Iterator[Path]:
    for name in ("_mnncengine", "_tools"):
        yield from home.glob(f"lib/python*/site-packages/{name}.*.so")
