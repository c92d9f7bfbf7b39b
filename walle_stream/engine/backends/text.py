"""Operations on strings, which every backend leaves to its host."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from walle_stream.engine.program import Array


def compute_text(inputs: Sequence[Array], parameters: Mapping[str, Any]) -> list[Array]:
    """Run one operation on strings.

    Args:
        inputs: Arrays; those of strings have the dtype ``object``.
        parameters: ``name`` says which, the others are its own.

    Returns:
        One array an output.
    """
    given = dict(parameters)
    return _OPERATIONS[given.pop("name")](inputs, **given)


_OPERATIONS: Final[dict[str, Callable[..., list[Array]]]] = {}
