"""A worker's own resources: its data directory, and the address of its pages."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from walle_stream.errors import MetricsAddressError, StoreError, StoreLockedError
from walle_stream.store.locks import lock_within

LOCK_WAIT_S: Final = 10.0
"""A killed worker may hold its databases for some time while it is ending."""

_RUNS_FILE: Final = "meta.json"


@contextmanager
def own_data_dir(path: Path, wait_s: float = LOCK_WAIT_S) -> Iterator[Path]:
    """Make and lock a data directory; the lock goes with the process. Blocks.

    Waits at most ``wait_s`` for a worker that is ending. Yields the absolute path.

    Raises:
        StoreError: It cannot be used, or belongs to ``walle run``.
        StoreLockedError: Another worker has it.
    """
    if (path / _RUNS_FILE).exists():
        raise StoreError(
            f"{path} is the data directory of walle run or walle device: give another --data-dir"
        )
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StoreError(
            f"{path} cannot be used as data directory ({reason}): give another --data-dir"
        ) from error
    try:
        if not lock_within(lock, wait_s):
            raise StoreLockedError(
                f"{path} is the data directory of another running worker: give each its own "
                "--data-dir and --web-port"
            )
        yield path.absolute()
    finally:
        os.close(lock)


def advertised(text: str | None, port: int) -> tuple[str, int] | None:
    """Parse ``HOST[:PORT]``, the public address of a worker's pages; IPv6 is in brackets.

    Raises:
        MetricsAddressError: The text is no address.
    """
    if text is None:
        return None
    try:
        found = urlsplit(f"//{text}")
        if found.netloc == text and found.hostname and "@" not in text:
            return found.hostname, found.port or port
    except ValueError:
        pass
    raise MetricsAddressError(f"--advertise {text}: give HOST or HOST:PORT")
