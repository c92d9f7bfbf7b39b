"""What errors of Ray mean. Ray itself is handed in: nothing here imports it."""

from typing import Any, Final

_LINE_MAX: Final = 300


def last_line(error: BaseException) -> str:
    """Return what an error of Ray says in the end; above are pages of its own."""
    return str(error).strip().rpartition("\n")[2][:_LINE_MAX]


def death_errors(ray: Any) -> tuple[type[Exception], ...]:
    """Return the errors of a call whose actor ended: an answer that went with it, too."""
    errors = ray.exceptions
    return (
        errors.RayActorError,
        errors.OutOfMemoryError,
        errors.ObjectLostError,
        errors.NodeDiedError,
    )
