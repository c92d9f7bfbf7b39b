"""The peers of the comparison, and the attempts with which each runs its cases."""

from typing import Final, NamedTuple

from engine_parts.contenders import MNN, ONNXRUNTIME
from peers_parts.contenders import Contender


class Peer(NamedTuple):
    """A peer, with its title for the report."""

    contender: Contender
    title: str
    attempts: tuple[str, ...]
    """Attempts, in order, until a case passes."""
    is_narrow: bool = False
    """Whether it has few dtypes: inputs are cast to what it has, outputs to what is wanted."""
    is_packed: bool = False
    """Whether elements of 2 and 4 bits are given to it as constants of the model."""
    note: str = ""


PEERS: Final = (
    Peer(
        ONNXRUNTIME,
        "onnxruntime",
        ("optimised", "plain"),
        is_packed=True,
        note="CPUExecutionProvider, opsets allowed that it does not call released; a case counts, "
        "too, if it passes without optimisations; elements of 2 and 4 bits are given as constants "
        "of the model",
    ),
    Peer(
        Contender("reference", "ONNX reference"),
        "ONNX reference",
        ("plain",),
        note="`onnx.reference`, the evaluator that comes with onnx",
    ),
    Peer(
        MNN,
        "MNN",
        ("optimised", "plain", "fixed"),
        is_narrow=True,
        note="its wheel is built for AVX2. Its own mnnconvert converts the models, precision high. "
        "A case also counts if it passes without the converter's optimisations, or loaded for "
        "fixed shapes. Inputs are cast to the dtypes that it has, outputs back to those of the "
        "case. Two expanded causal convolutions pass in some runs and fail in others",
    ),
)
"""In the order of the columns; the ONNX reference runs on our own Python."""
