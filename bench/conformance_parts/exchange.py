"""What crosses between the bench and a peer's process: files of MessagePack.

Read by any Python that a peer has, with msgspec alone. Elements are named by ONNX's
numbers of types, as numpy has no names for all of them.
"""

from pathlib import Path

import msgspec


class Tensor(msgspec.Struct):
    """An array, row-major."""

    element_type: int
    """Of ``onnx.TensorProto``."""
    shape: list[int]
    data: bytes
    """Elements as numpy or ``ml_dtypes`` keep them: those of 2 and 4 bits take a byte each."""
    texts: list[str] | None = None
    """Elements that are strings, instead of ``data``."""


Value = Tensor | list[Tensor | None] | None
"""A tensor, a sequence, or an empty optional."""


class Question(msgspec.Struct):
    """A case to run."""

    model: bytes
    inputs: list[str]
    """Names; of those of the model's inputs that are not constants of it."""
    outputs: list[str]
    attempt: str
    """One of the peer's own words, see ``peers``."""
    sets: list[list[Value]]
    """The inputs, as often as the case has them."""


class Answer(msgspec.Struct):
    """What a peer gave."""

    sets: list[list[Value]]
    """The outputs, as often as there were inputs."""
    reason: str = ""
    """Why there are none."""


def write(path: Path, message: Question | Answer) -> None:
    """Write a message."""
    path.write_bytes(msgspec.msgpack.encode(message))


def read[T](path: Path, kind: type[T]) -> T:
    """Read a message."""
    return msgspec.msgpack.decode(path.read_bytes(), type=kind)
