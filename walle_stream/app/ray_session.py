"""Ray itself: found, started or joined, compared, left.

The only module that knows how Ray is set up. Ray is imported here and in no
module that a local run imports.
"""

import logging
import os
import platform
import secrets
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from walle_stream import __version__
from walle_stream.errors import ClusterError

OBJECT_STORE_BYTES: Final = 150 * 2**20
"""Of an embedded cluster: nothing large goes through it."""

CONNECT_TIMEOUT_S: Final = 10.0
"""Longest wait for the port of ``RAY_ADDRESS``."""

_ENVIRON: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "PYTHONHASHSEED": "0",
}
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Versions(msgspec.Struct, frozen=True):
    """What a worker must have in common with the driver."""

    python: str
    ray: str
    walle: str
    hash_seed: str

    @classmethod
    def here(cls) -> "Versions":
        """Return this process's."""
        import ray  # noqa: PLC0415 - only where Ray runs

        return cls(
            platform.python_version(),
            str(ray.__version__),
            __version__,
            os.environ.get("PYTHONHASHSEED", "random"),
        )

    def check_worker(self, worker: "Versions") -> None:
        """Refuse a worker that is not like this process.

        Args:
            worker: The worker's.

        Raises:
            ClusterError: They differ.
        """
        named = {
            "Python": (self.python, worker.python),
            "Ray": (self.ray, worker.ray),
            "walle_stream": (self.walle, worker.walle),
            "PYTHONHASHSEED": (self.hash_seed, worker.hash_seed),
        }
        for name, (here, there) in named.items():
            if here != there:
                raise ClusterError(
                    f"a worker of the Ray cluster has {name} {there}, this process {here}: start "
                    "the cluster from the same environment"
                )


@contextmanager
def ray_session(hosts: int) -> Iterator[Any]:
    """Join the cluster of ``RAY_ADDRESS``, or start one on this machine; blocks.

    A cluster that this process has joined already is used and left as it is.

    Args:
        hosts: Actors that shall run beside the cloud side's.

    Yields:
        The module ``ray``.

    Raises:
        ClusterError: Ray is not installed, or its cluster is not there or not
            like this process.
    """
    os.environ |= _ENVIRON
    # what a worker compiles the next one finds
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    address = os.environ.get("RAY_ADDRESS")
    if not address:
        # only who has the token can run code in a cluster of ours
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        import ray  # noqa: PLC0415 - only where Ray runs
    except ImportError as error:
        raise ClusterError(
            f"the runtime ray needs Ray ({error}): pip install 'walle-stream[ray]'"
        ) from error
    if ray.is_initialized():
        yield ray
        return
    handlers = [(number, signal.getsignal(number)) for number in _SIGNALS]
    folder = None
    try:
        if address:
            _join(ray, address)
        else:
            folder = _make_folder()
            _start(ray, folder, hosts)
        _restore(handlers)
        yield ray
    finally:
        ray.shutdown()
        _restore(handlers)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _join(ray: Any, address: str) -> None:
    if "://" in address:
        raise ClusterError(
            f"RAY_ADDRESS is {address!r}: a run must be on a machine of the cluster, give "
            "HOST:PORT or auto"
        )
    _knock(address)
    environ = {name: os.environ[name] for name in ("PYTHONPATH", *_ENVIRON) if name in os.environ}
    try:
        ray.init(
            address=address,
            runtime_env={"env_vars": environ},
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except Exception as error:
        raise ClusterError(
            f"the Ray cluster {address!r} (RAY_ADDRESS) cannot be used: {_one_line(error)}. Start "
            "it from this environment (ray start --head), or unset RAY_ADDRESS"
        ) from error


def _knock(address: str) -> None:
    # Ray itself tries for minutes, with a line on stderr each time
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return  # ``auto``
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(
            f"the Ray cluster {address!r} (RAY_ADDRESS) cannot be reached: {error}. Start it from "
            "this environment (ray start --head), or unset RAY_ADDRESS"
        ) from error


def _start(ray: Any, folder: Path, hosts: int) -> None:
    try:
        ray.init(
            address="local",
            num_cpus=hosts + 1,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=str(folder),
            _node_ip_address="127.0.0.1",
        )
    except Exception as error:
        raise ClusterError(
            f"Ray cannot be started on this machine: {_one_line(error)}; its log is in {folder}"
        ) from error


def _make_folder() -> Path:
    # sockets lie in it, and a socket's path has at most 107 bytes
    short = Path("/tmp")  # noqa: S108 - its folder has a name that nobody can guess
    parent = short if short.is_dir() and os.access(short, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="walle-ray-", dir=parent))


def _restore(handlers: list[tuple[signal.Signals, Any]]) -> None:
    # Ray puts its own for SIGTERM in the place of ours
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers:
            with suppress(TypeError):
                signal.signal(number, handler)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500] or type(error).__name__
