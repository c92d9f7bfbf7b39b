"""Pushes: the release service's answer to a device's request.

The answer carries only addresses. The device pulls the files from there, and uses a file only if
the signed metadata names it.
"""

from typing import Annotated, Final, Literal

import msgspec

PUSH_HEADER: Final = "walle-push"
"""Header of the answer with a ``Push`` (base64url of JSON, as for profiles)."""

PUSH_TYPE: Final = "application/vnd.walle.push+json"
"""Type of a body that is a ``Push``; JSON of any other type is a business answer."""


class PushedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of a version."""

    target: str
    """Name in the signed targets metadata, such as ``shop/ipv/v2/ipv-v2.walle``."""
    url: str
    """Address in the CDN, or in the CEN (signed for this device, with an expiry)."""
    sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
    """SHA-256 of the whole file; the signed metadata must have the same."""
    size_bytes: int
    audience: Literal["shared", "exclusive"] = "shared"
    resource: str = ""
    """The script's name for the file; empty for the task's package itself."""


class PushedTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task for which the device should have another version."""

    task: str
    """``SCENARIO/TASK``."""
    version: str
    """The wanted version. If empty, the device uninstalls the pulled version and gets the app's own
    version back, if there is one. Without a pulled version, it removes the app's own version."""
    release: str = ""
    """Id of the release with this version, for reports."""
    files: tuple[PushedFile, ...] = ()
    """The package first, then exclusive resources."""


class Push(msgspec.Struct, frozen=True, omit_defaults=True):
    """All news for one device."""

    tasks: tuple[PushedTask, ...]
    """Empty if only receipts are new."""
    metadata_url: str = ""
    receipts: dict[str, str] = {}
    """Receipts by task, for the device's reports (``model.receipts``): for the pushed version if
    there is one, otherwise for the present one."""
