"""What a worker has for itself alone: its data directory, and the address of its pages."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from walle_stream.errors import MetricsAddressError, StoreError, StoreLockedError


@contextmanager
def own_data_dir(path: Path) -> Iterator[Path]:
    """Make a data directory and hold it; the lock goes with the process, whatever ends it.

    Args:
        path: Made if it is missing.

    Yields:
        The absolute path.

    Raises:
        StoreLockedError: Another worker holds it.
        StoreError: It cannot be made or written.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be used as data directory ({error.strerror}): give another --data-dir"
        ) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            # Faust would give both workers the databases in turns, as their partitions move
            raise StoreLockedError(
                f"{path} is the data directory of another worker that runs: give each its own "
                "--data-dir and --web-port"
            ) from error
        yield path.absolute()
    finally:
        os.close(lock)


def check_address(host: str, port: int) -> None:
    """Look whether pages can be answered at an address.

    Args:
        host: Name or address.
        port: TCP.

    Raises:
        MetricsAddressError: It is taken, or not of this machine.
    """
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in places:
            with socket.socket(family, kind, protocol) as probe:
                # as the server: what a worker before it left behind is no neighbour
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    with suppress(OSError):
                        probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
    except OSError as error:
        raise MetricsAddressError(
            f"look-ups cannot be answered at {host}:{port} ({error.strerror}): give another "
            "--web-port or --web-host"
        ) from error
