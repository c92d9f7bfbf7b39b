"""Progress of a campaign on disk, from which it continues after its own ``kill -9``.

``campaign.json`` is replaced atomically (written beside, synced, renamed) after every kill and at
every step between lives, so it is always complete.
"""

import fcntl
import os
from pathlib import Path
from typing import Final

import msgspec

from walle_stream.errors import CampaignError
from walle_stream.store.files import put_file
from walle_stream.testing.chaos.plan import ChaosPlan
from walle_stream.testing.chaos.report import FaultReport

LEDGER_FORMAT: Final = 1
"""Version of the file's layout."""

_FILE: Final = "campaign.json"
_LOCK: Final = "campaign.lock"


class Ledger(msgspec.Struct, kw_only=True):
    """State of a campaign for its resumption."""

    format: int = LEDGER_FORMAT
    plan: ChaosPlan
    report: FaultReport
    part: int = 0
    """Index of the current part."""
    has_reference: bool = False
    """Whether the part's unkilled run is complete."""
    lives: int = 0
    """Lives of all parts so far, which is the number of the current life."""
    is_alive: bool = False
    """Whether a life has begun whose data directory must be continued."""
    shots: int = 0
    """Kills drawn so far; see ``aim``."""
    too_early: int = 0
    """Kills in a row that hit a life before its first commit, which do not count."""

    def write(self, folder: Path) -> None:
        """Replace the file."""
        put_file(folder / _FILE, msgspec.json.format(msgspec.json.encode(self)) + b"\n")


def read_ledger(folder: Path) -> Ledger | None:
    """Read the file; None if the folder has no campaign.

    Raises:
        CampaignError: The file is damaged or has another version.
    """
    path = folder / _FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        found = msgspec.json.decode(content, type=dict).get("format")
        if found == LEDGER_FORMAT:
            return msgspec.json.decode(content, type=Ledger)
    except msgspec.DecodeError as error:
        raise CampaignError(f"{path} is damaged ({error}): give another --folder") from error
    raise CampaignError(
        f"{path} has format {found}, this version reads {LEDGER_FORMAT}: resume it with the "
        "version that began it, or give another --folder"
    )


def forget_ledger(folder: Path) -> None:
    """Remove the file: the campaign is over."""
    (folder / _FILE).unlink(missing_ok=True)


def lock_folder(folder: Path) -> int:
    """Take the folder for this process and return the descriptor that holds it.

    Args:
        folder: An existing folder, empty or of a campaign.

    Raises:
        CampaignError: Another campaign uses the folder, or it has other contents.
    """
    if any(folder.iterdir()) and not (folder / _LOCK).exists():
        # a campaign would remove foreign files with names like ours
        raise CampaignError(f"{folder} has files but no campaign: give another --folder")
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise CampaignError(
            f"another campaign runs in {folder}: wait for its end, or give another --folder"
        ) from error
    return descriptor
