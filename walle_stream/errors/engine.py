"""Errors of the tensor engine."""

from typing import ClassVar, Final

from walle_stream.errors.base import WalleError

_MESSAGE_MAX: Final = 1000
"""Characters: names and attributes in a message come from a model, as long as it likes."""


class EngineError(WalleError):
    """Base of the tensor engine's errors; raised itself for what has no class of its own.

    The message names the node; correct the model, or what it was given.
    """

    exit_code: ClassVar[int] = 15

    def __init__(self, message: str = "") -> None:
        """Keep the message, made one line of bounded length: its beginning and its end."""
        line = " ".join(message[: 2 * _MESSAGE_MAX].split()) if "\n" in message else message
        if len(line) > _MESSAGE_MAX:
            line = f"{line[: _MESSAGE_MAX // 2]} ... {line[-_MESSAGE_MAX // 2 + 5 :]}"
        super().__init__(line)


class DTypeError(EngineError, TypeError):
    """A tensor has a dtype that an operator or an input of a model does not take.

    Cast it, or export the model with another dtype.
    """


class LoweringError(EngineError):
    """An operator is unknown, in this version or with these attributes.

    The message names operator, version and node: export the model with another
    version, or without the operator.
    """


class ModelError(EngineError, ValueError):
    """A model cannot be read: no ONNX, cut off, cyclic, or data outside of its folder.

    Export it again; nothing was loaded.
    """


class ShapeError(EngineError, ValueError):
    """Shapes do not fit each other or an operator, or nobody can allocate them.

    The message names node and shapes: correct the model, or what it was given.
    """


class SpecError(EngineError):
    """A program is not what its specification says: a fault of the engine itself.

    Tell the developers, with the model; another backend may run it meanwhile.
    """
