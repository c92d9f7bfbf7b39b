"""Errors of the tensor engine."""

from typing import ClassVar, Final

from walle_stream.errors.base import WalleError

_MESSAGE_MAX: Final = 1000
"""In characters. A model's names and attributes appear in messages, and have no bound."""


class EngineError(WalleError):
    """Base of the tensor engine's errors; raised itself for errors without their own class.

    The message names the node. Correct the model or its inputs.
    """

    exit_code: ClassVar[int] = 15

    def __init__(self, message: str = "") -> None:
        """Keep the message as one line; a long one keeps its beginning and its end."""
        line = " ".join(message[: 2 * _MESSAGE_MAX].split()) if "\n" in message else message
        if len(line) > _MESSAGE_MAX:
            line = f"{line[: _MESSAGE_MAX // 2]} ... {line[-_MESSAGE_MAX // 2 + 5 :]}"
        super().__init__(line)


class DTypeError(EngineError, TypeError):
    """A tensor has a dtype that an operator or an input of a model does not accept.

    Cast the tensor, or export the model with another dtype.
    """


class LoweringError(EngineError):
    """An operator is unknown, or not supported in this version or with these attributes.

    The message names operator, version and node. Export the model with another
    version, or without the operator.
    """


class ModelError(EngineError, ValueError):
    """A model is not ONNX, truncated or cyclic, or has data outside its folder.

    Export the model again. Nothing was loaded.
    """


class ShapeError(EngineError, ValueError):
    """Shapes do not fit each other or an operator, or are too large to allocate.

    The message names node and shapes. Correct the model or its inputs.
    """


class SpecError(EngineError):
    """A program violates its specification, which is a bug of the engine.

    Send the model to the developers. Meanwhile, another backend may run it.
    """
