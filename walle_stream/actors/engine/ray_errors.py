"""Interpretation of Ray's errors. The caller passes Ray in: this module does not import it."""

from typing import Any, Final

_LINE_MAX: Final = 300


def last_line(error: BaseException) -> str:
    """Return the last line of an error of Ray; Ray's own pages come above it."""
    return str(error).strip().rpartition("\n")[2][:_LINE_MAX]


def death_errors(ray: Any) -> tuple[type[Exception], ...]:
    """Return the errors of a call whose actor ended, or whose answer was lost with it."""
    errors = ray.exceptions
    return (
        errors.RayActorError,
        errors.OutOfMemoryError,
        errors.ObjectLostError,
        errors.NodeDiedError,
    )
