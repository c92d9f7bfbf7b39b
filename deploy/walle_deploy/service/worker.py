"""Worker processes of the release service under uvicorn.

uvicorn starts and restarts the workers. Each worker is a new process that finds its set-up in the
environment. It has its own loop, table and known devices. The workers share only the socket.
"""

import gc
import json
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.supervisors import Multiprocess

from walle_deploy.service.admission import OPEN_MODE, Admission
from walle_deploy.service.asgi import service_app
from walle_deploy.service.checks import answer_checks
from walle_deploy.service.protocol import bounded_protocol
from walle_deploy.service.service import Parts, ReleaseService
from walle_deploy.service.settings import ServiceDefinition, ServiceSpec
from walle_stream.spec.single import load_single

_VARIABLE: Final = "WALLE_RELEASE_SERVICE"
_log = logging.getLogger(__name__)


def load_settings(file: Path | None, files: str = "") -> ServiceSpec:
    """Load a service's settings; without a file, the defaults.

    ``files`` is the address of a server with all files, for addresses that the YAML leaves out.

    Raises:
        SpecFileError: The file is wrong.
    """
    spec = ServiceSpec() if file is None else load_single(file, ServiceDefinition).spec
    if not files:
        return spec
    base = f"{files.rstrip('/')}/"
    return spec.model_copy(
        update={
            "cdn": spec.cdn or base,
            "cen": spec.cen or base,
            "metadata": spec.metadata or f"{base}metadata/",
        }
    )


def serve(
    file: Path | None, setup: Mapping[str, str], listener: socket.socket, workers: int, opener: str
) -> None:
    """Serve until a signal; blocks. Requests at hand are answered first, for at most 10 s.

    ``opener`` is the ``MODULE:FUNCTION`` that opens the seams in each worker, from ``setup``. A
    single worker serves in this process. The listener is closed at the end.

    Raises:
        SpecFileError: The set-up is wrong.
    """
    # loaded here too, so that problems are reported once and not by each worker
    spec = load_settings(file, setup.get("files", ""))
    if Admission(spec).is_open:
        _log.warning("%s", OPEN_MODE)
    settings = {"file": file and str(file.absolute()), "setup": dict(setup), "opener": opener}
    config = uvicorn.Config(
        f"{__name__}:create_app",
        factory=True,
        http=f"{__name__}:Protocol",
        loop="uvloop",
        workers=workers,
        access_log=False,
        server_header=False,
        # the set-up names the proxies, and the application checks their addresses
        proxy_headers=False,
        log_level="warning",
        lifespan="on",
        ws="none",
        backlog=4_096,
        timeout_keep_alive=spec.limits.keep_alive_ms // 1_000,
        timeout_graceful_shutdown=10,
    )
    if workers == 1:
        os.environ[_VARIABLE] = json.dumps(settings)
        uvicorn.Server(config).run(sockets=[listener])
        return
    with TemporaryDirectory(prefix="walle-serve-", ignore_cleanup_errors=True) as folder:
        os.environ[_VARIABLE] = json.dumps({**settings, "figures": folder, "starter": os.getpid()})
        Multiprocess(config, sockets=[listener]).run()


@cache
def _service() -> ReleaseService:
    settings = json.loads(os.environ[_VARIABLE])
    files = settings["setup"].get("files", "")
    spec = load_settings(settings["file"] and Path(settings["file"]), files)
    module, _, name = settings["opener"].partition(":")
    admission = Admission(spec)
    parts: Parts = getattr(import_module(module), name)(settings["setup"], admission)
    parts = parts._replace(making=_unscanned)
    if "figures" in settings:
        parts = parts._replace(figures=Path(settings["figures"]))
    return ReleaseService(spec, parts, admission)


@contextmanager
def _unscanned() -> Iterator[None]:
    """Hide the objects made in this context, a table, from the garbage collector.

    The collector would scan some 100,000 objects again and again while all checks wait. The
    objects have no cycles, so reference counting frees them. The same holds for connections, which
    are hidden along with the table.
    """
    gc.collect()  # little garbage since the last table
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def create_app() -> ASGIApp:
    """Return this process's application; uvicorn calls it."""
    # requests leave no cycles, yet scanning the objects of a thousand connections takes 5 ms
    gc.set_threshold(50_000, 20, 100)
    starter = json.loads(os.environ[_VARIABLE]).get("starter")
    if starter is not None:
        threading.Thread(target=_stop_with, args=(starter,), daemon=True).start()
    return service_app(_service())


def _stop_with(starter: int) -> None:
    # a killed parent notifies no worker, and orphaned workers would hold its address forever
    while os.getppid() == starter:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)


def __getattr__(name: str) -> Any:
    # only the worker knows the protocol's limits
    if name != "Protocol":
        raise AttributeError(name)
    return _protocol()


@cache
def _protocol() -> Any:
    service = _service()
    return bounded_protocol(service.spec, service.answers, *answer_checks(service))
