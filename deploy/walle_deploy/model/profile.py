"""A device's task profile, carried by a header of its ordinary requests.

Walle, section 4.2: push-then-pull needs no connection of its own, because devices send business
requests anyway. The header ``walle-profile`` is base64url (without padding) of a JSON object with
short keys. A profile describes the device and its versions; about the user it has only an id.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec

from walle_deploy.model.held import HeldReceipts
from walle_deploy.model.owners import device_problem
from walle_stream.errors import ProfileError

PROFILE_HEADER: Final = "walle-profile"
PROFILE_MAX_BYTES: Final = 8_000
"""Longest value of the header; by default, servers accept 8 KiB for its line with its name."""

_Text = Annotated[str, msgspec.Meta(max_length=128)]
_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
_TASKS_MAX: Final = 256


_SHORT: Final = {"app_version": "appv", "os_version": "osv", "receipts": "rc"}


class DeviceProfile(msgspec.Struct, frozen=True, omit_defaults=True, rename=_SHORT):
    """A device's description of itself.

    Any of it may be a lie. So policies decide which version a device is offered, never what it may
    read.
    """

    device: _Id
    app: _Text = ""
    """Name of the app that hosts the tasks."""
    app_version: _Text = ""
    os: _Text = ""
    os_version: _Text = ""
    interpreter: _Text = ""
    """Its Python, such as ``cpython-314``."""
    performance: Literal["", "low", "middle", "high"] = ""
    """Its class; empty if unknown."""
    model: _Text = ""
    memory_mb: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0
    """0 if unknown."""
    user: Annotated[str, msgspec.Meta(max_length=256)] = ""
    """Key for the service's attribute sources; empty if no user is signed in."""
    tasks: dict[_Text, _Text] = {}
    """The installed version of each task ``SCENARIO/TASK``."""
    receipts: HeldReceipts | None = None
    """Summary of its receipts; None if it takes no receipts."""


_decoder: Final = msgspec.json.Decoder(DeviceProfile)
_encode: Final = msgspec.json.Encoder().encode


def encode_profile(profile: DeviceProfile) -> str:
    """Return the header's value.

    The summary of receipts is left out if the value would be too long with it.

    Raises:
        ProfileError: The profile is too long for a header.
    """
    value = urlsafe_b64encode(_encode(profile)).rstrip(b"=").decode("ascii")
    if len(value) > PROFILE_MAX_BYTES and profile.receipts is not None:
        return encode_profile(msgspec.structs.replace(profile, receipts=None))
    if len(value) > PROFILE_MAX_BYTES or len(profile.tasks) > _TASKS_MAX:
        raise ProfileError(
            f"device {profile.device!r}: its profile has {len(value)} bytes and "
            f"{len(profile.tasks)} tasks, but a header holds {PROFILE_MAX_BYTES} and {_TASKS_MAX}: "
            "uninstall unused tasks"
        )
    return value


def decode_profile(value: bytes | str) -> DeviceProfile:
    """Read the header's value, which is not trusted.

    Raises:
        ProfileError: The value is not a profile.
    """
    if not value:
        raise ProfileError(f"the header {PROFILE_HEADER} is missing or empty")
    if len(value) > PROFILE_MAX_BYTES:
        raise ProfileError(
            f"a profile has {len(value)} bytes: expected at most {PROFILE_MAX_BYTES} in "
            f"{PROFILE_HEADER}"
        )
    try:
        text = value.encode("ascii") if isinstance(value, str) else value
        profile = _decoder.decode(urlsafe_b64decode(text + b"=" * (-len(text) % 4)))
    except (Base64Error, UnicodeEncodeError, msgspec.MsgspecError, ValueError) as error:
        raise ProfileError(
            f"{PROFILE_HEADER}: not base64url of a profile: {str(error)[:200]}"
        ) from error
    if problem := device_problem(profile.device):
        raise ProfileError(f"{PROFILE_HEADER}: {problem}")
    held_count = len(profile.receipts.others) if profile.receipts is not None else 0
    if max(len(profile.tasks), held_count) > _TASKS_MAX:
        count = max(len(profile.tasks), held_count)
        raise ProfileError(f"{PROFILE_HEADER}: {count} tasks: expected at most {_TASKS_MAX}")
    return profile


def with_versions(
    profile: DeviceProfile, versions: Mapping[str, str], receipts: HeldReceipts | None = None
) -> DeviceProfile:
    """Return the profile after an installation."""
    return msgspec.structs.replace(profile, tasks=dict(versions), receipts=receipts)
