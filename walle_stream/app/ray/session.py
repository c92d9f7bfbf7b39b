"""Set-up of Ray: find, start or join a cluster, compare versions, and leave.

Only this module knows how Ray is set up. A local run imports no module that imports Ray.
"""

import logging
import os
import platform
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, Final

import msgspec

from walle_stream import __version__
from walle_stream.app.ray.auth import adopt_auth_mode
from walle_stream.app.ray.folder import cluster_folder
from walle_stream.errors import ClusterError
from walle_stream.errors.extras import how_to_install

OBJECT_STORE_BYTES: Final = 150 * 2**20
"""Object store of an embedded cluster: only data for engine actors is large."""

CONNECT_TIMEOUT_S: Final = 10.0
"""Maximum wait for the port of ``RAY_ADDRESS``."""

_ENVIRON: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    # otherwise Ray holds back repeated lines, and prints them when it ends
    "RAY_DEDUP_LOGS": "0",
    "PYTHONHASHSEED": "0",
}
_LEAST_S: Final = 0.001
_LISTENER: Final = "ray_listen_error_messages"
_HTTP2_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HTTP2_SETTINGS: Final = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


type Versions = Mapping[str, str]
"""Versions that a worker must share with the driver, by name.

A plain mapping, so that a worker with another walle_stream can report its versions, too.
"""


def versions_here() -> Versions:
    """Return the versions of this process."""
    import ray  # noqa: PLC0415 - only where Ray runs

    return {
        "Python": platform.python_version(),
        "Ray": str(ray.__version__),
        "walle_stream": __version__,
        "msgspec": msgspec.__version__,
        "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "random"),
    }


def node_here() -> tuple[str, str]:
    """Return Ray's id of this process's node, and its address."""
    import ray  # noqa: PLC0415 - only where Ray runs

    return str(ray.get_runtime_context().get_node_id()), str(ray.util.get_node_ip_address())


def check_worker(name: str, here: Versions, there: Versions) -> None:
    """Refuse a worker whose versions differ from ``here``; a missing name is a difference.

    Raises:
        ClusterError: The versions differ.
    """
    other = [key for key in here if there.get(key) != here[key]]
    if other:
        has = ", ".join(f"{key} {there.get(key, 'unknown')}" for key in other)
        wanted = ", ".join(f"{key} {here[key]}" for key in other)
        raise ClusterError(
            f"{name} of the Ray cluster has {has}, this process has {wanted}: start the cluster "
            "from the same environment, or unset RAY_ADDRESS"
        )


def check_cluster(*, is_joined: bool = False) -> None:
    """Check that Ray is installed and the cluster of ``RAY_ADDRESS`` answers; starts nothing.

    Blocks for twice ``CONNECT_TIMEOUT_S`` at most: for the connection, and for an answer. With
    ``is_joined``, ``RAY_ADDRESS`` must name a cluster.

    Raises:
        ClusterError: Ray is not installed, or the cluster does not answer.
    """
    ray, address = _import()
    if ray.is_initialized():
        return
    if not address:
        if is_joined:
            raise ClusterError(
                "the runtime cluster needs a Ray cluster, but RAY_ADDRESS names none: start one "
                "(ray up, ray start --head) and set RAY_ADDRESS=auto, or use --runtime ray"
            )
        return
    if address != "auto":
        _knock(address)


@contextmanager
def ray_session(hosts: int, *, more_cpus: int = 0, more_bytes: int = 0) -> Iterator[Any]:
    """Join the cluster of ``RAY_ADDRESS``, or start one on this machine; blocks.

    A cluster that this process has already joined is used and left unchanged. A started cluster
    gets ``more_cpus``, and ``more_bytes`` of object store, for other actors. Yields the module
    ``ray``.

    Raises:
        ClusterError: Ray is not installed, or its cluster is unreachable or has other versions.
    """
    ray, address = _import()
    if ray.is_initialized():
        yield ray
        return
    with ExitStack() as stack:
        # in the main thread Ray would replace our signal handlers; Ray's processes end with the
        # thread that started them
        thread = stack.enter_context(ThreadPoolExecutor(1, "ray-init"))
        if address:
            stack.callback(ray.shutdown)
            thread.submit(_join, ray, address).result()
        else:
            folder = stack.enter_context(cluster_folder())
            stack.callback(ray.shutdown)
            thread.submit(_start, ray, folder, hosts + more_cpus, more_bytes).result()
        _take_signals_back()
        stack.enter_context(redirect_stdout(_Stdout(sys.stdout)))
        yield ray


@contextmanager
def ray_client(address: str) -> Iterator[Any]:
    """Connect to a cluster's client server, ``ray://HOST:PORT``; blocks. Yields ``ray``.

    Raises:
        ClusterError: The server cannot be reached, or has another Ray or Python.
    """
    _knock(address.removeprefix("ray://"))
    os.environ |= _ENVIRON
    import ray  # noqa: PLC0415 - only where Ray runs

    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:
        raise ClusterError(f"{address} cannot be used: {_one_line(error)}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _take_signals_back() -> None:
    # Ray's own SIGTERM handler aborts the process 3 s later, whatever ours is doing
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            if handler is not None:
                signal.signal(number, handler)


class _Stdout:
    """Standard output without the paragraph that Ray's listener prints for each dead process.

    The report goes to standard output, and we log those deaths ourselves. Ray has no switch for it.
    """

    def __init__(self, below: Any) -> None:
        self._below = below

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)

    def write(self, text: str) -> int:
        if threading.current_thread().name == _LISTENER:
            return len(text)
        return int(self._below.write(text))


def _import() -> tuple[Any, str]:
    # the module, which reads the environment, and the address of a cluster to join
    os.environ |= _ENVIRON
    # workers share compiled bytecode
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    address = os.environ.get("RAY_ADDRESS", "")
    if address == "local":  # Ray's word for an embedded cluster
        address = ""
    if not address:
        # only holders of the token can run code in an embedded cluster
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    else:
        adopt_auth_mode(address)
    try:
        import ray  # noqa: PLC0415 - only where Ray runs
        from ray import init  # noqa: F401, PLC0415 - which a folder of the name, as ours, has not
    except ImportError as error:
        raise ClusterError(
            f"the runtime ray needs Ray ({error}): {how_to_install('ray')}"
        ) from error
    return ray, address


def _join(ray: Any, address: str) -> None:
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
    # Ray itself retries for minutes, with a line on stderr each time
    host, _, port = address.rpartition(":")
    if not host or "://" in address or not port.isdecimal():
        raise ClusterError(
            f"RAY_ADDRESS is {address!r}: a run must be on a machine of the cluster; set "
            "HOST:PORT or auto"
        )
    way_out = "Start it from this environment (ray start --head), or unset RAY_ADDRESS"
    try:
        with socket.create_connection(
            (host.strip("[]"), int(port)), CONNECT_TIMEOUT_S
        ) as connection:
            is_ray = _speaks_http2(connection)
    except (OSError, OverflowError) as error:
        raise ClusterError(
            f"the Ray cluster {address!r} (RAY_ADDRESS) cannot be reached: {error}. {way_out}"
        ) from error
    if not is_ray:
        raise ClusterError(
            f"the server at {address!r} (RAY_ADDRESS) does not answer as Ray does. {way_out}"
        )


def _speaks_http2(connection: socket.socket) -> bool:
    # a gRPC server's first frame is SETTINGS
    if os.environ.get("RAY_USE_TLS", "0") not in {"", "0"}:
        return True  # the server would first want a certificate
    deadline_s = time.monotonic() + CONNECT_TIMEOUT_S
    connection.sendall(_HTTP2_PREFACE + _HTTP2_SETTINGS)
    head = b""
    while len(head) < len(_HTTP2_SETTINGS):
        connection.settimeout(max(deadline_s - time.monotonic(), _LEAST_S))
        part = connection.recv(64)
        if not part:
            break
        head += part
    return head[3:4] == _HTTP2_SETTINGS[3:4] and head[5:9] == bytes(4)


def _start(ray: Any, folder: Path, hosts: int, more_bytes: int) -> None:
    try:
        ray.init(
            address="local",
            num_cpus=hosts + 1,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES + more_bytes,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=str(folder),
            _node_ip_address="127.0.0.1",
        )
    except Exception as error:
        raise ClusterError(
            f"Ray cannot be started on this machine: {_one_line(error)}; its log is in {folder}"
        ) from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500] or type(error).__name__
