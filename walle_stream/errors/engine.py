"""Errors of the tensor engine."""

from typing import ClassVar

from walle_stream.errors.base import WalleError


class EngineError(WalleError):
    """Base of the tensor engine's errors; raised itself for what has no class of its own.

    The message names the node; correct the model, or what it was given.
    """

    exit_code: ClassVar[int] = 15


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
