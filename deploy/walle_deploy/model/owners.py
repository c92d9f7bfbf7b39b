"""Whose files are whose: a device's by its id, a user's by an id that no device has."""

from typing import Final

from walle_stream.types import device_id_problem

USER_PREFIX: Final = "user:"
"""Stands before a user's id where device ids stand, too."""


def owner_of_user(user: str) -> str:
    """Return what stands for a user where device ids stand, too."""
    return USER_PREFIX + user


def device_problem(device: str) -> str | None:
    """Say why a text cannot be a device's id; None where it can.

    A device that took the id of a user would be given that user's files.

    Args:
        device: Any text.
    """
    if device.startswith(USER_PREFIX):
        return f"a device's id cannot begin with {USER_PREFIX!r}"
    return device_id_problem(device)
