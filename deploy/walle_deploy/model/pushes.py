"""What the release service pushes to a device in the answer to its request.

Only addresses travel in the answer; the device pulls the files from there and believes none
of them before the signed metadata says that they are right.
"""

from typing import Annotated, Final, Literal

import msgspec

PUSH_HEADER: Final = "walle-push"
"""Name of the answer's header that carries a ``Push`` (base64url of JSON, as profiles)."""

PUSH_TYPE: Final = "application/vnd.walle.push+json"
"""Type of a body that is a ``Push``; JSON of any other type is somebody's business."""


class PushedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that the device must have."""

    target: str
    """Name in the signed targets metadata, such as ``shop/ipv/v2/ipv-v2.walle``."""
    url: str
    """Where to get it: of the CDN, or of the CEN (signed, for this device, expiring)."""
    sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
    """Of the whole file; the signed metadata must say the same."""
    size_bytes: int
    audience: Literal["shared", "exclusive"] = "shared"
    resource: str = ""
    """Name under which the script finds it; empty for the task's package itself."""


class PushedTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task whose version on the device is not the one that fits it."""

    task: str
    """``SCENARIO/TASK``."""
    version: str
    """Which one to have; empty: uninstall what was pulled, so that the app's own one is back where
    it has one; or that one, where nothing was pulled."""
    release: str = ""
    """Id of the release that brings it, for reports."""
    files: tuple[PushedFile, ...] = ()
    """The package first, then exclusive resources."""


class Push(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that is new for one device."""

    tasks: tuple[PushedTask, ...]
    """None where only receipts are new."""
    metadata_url: str = ""
    receipts: dict[str, str] = {}
    """By task, for the device's reports (``model.receipts``): of the version that is pushed, else
    of the one that the device has."""
