"""Owners of files: a device by its id, a user by an id that no device can have."""

from typing import Final

from walle_stream.types import device_id_problem

USER_PREFIX: Final = "user:"
"""Prefix of a user's id in places for device ids."""


def owner_of_user(user: str) -> str:
    """Return the id of a user in places for device ids."""
    return USER_PREFIX + user


def device_problem(device: str) -> str | None:
    """Return the reason why a text cannot be a device's id, or None if it can.

    A device with a user's id would get that user's files.
    """
    if device.startswith(USER_PREFIX):
        return f"a device's id cannot begin with {USER_PREFIX!r}"
    return device_id_problem(device)
