"""Worker processes of the release service under uvicorn.

uvicorn starts them and starts them anew; each finds its set-up in the environment, as it is a
new process, and has a loop, a table and known devices of its own. They share the socket alone.
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
    """Load how a service is set up; without a file by the defaults.

    ``files`` is the address of a server that has all files, where the YAML names none.

    Raises:
        SpecFileError: Something in it is wrong.
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
    """Serve until a signal; blocks. What is at hand is answered first, for 10 s at most.

    ``opener`` is ``MODULE:FUNCTION`` that opens the seams in each worker, of ``setup``. One worker
    serves in this process. The listener is closed at the end.

    Raises:
        SpecFileError: The set-up is wrong.
    """
    # problems are told here, once, not by each worker
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
        # which addresses are proxies says the set-up, and the application looks at it
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
    """Keep what is made within, a table, from the garbage collector.

    It would look at some 100,000 objects again and again, with all checks waiting. They have no
    cycles, so they go when nobody has them any more; nor have connections, which are kept from it
    along with the table.
    """
    gc.collect()  # since the last table: little
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def create_app() -> ASGIApp:
    """Return this process's application; uvicorn calls it."""
    # requests leave no cycles, yet a look at what a thousand connections have takes 5 ms
    gc.set_threshold(50_000, 20, 100)
    starter = json.loads(os.environ[_VARIABLE]).get("starter")
    if starter is not None:
        threading.Thread(target=_stop_with, args=(starter,), daemon=True).start()
    return service_app(_service())


def _stop_with(starter: int) -> None:
    # killed, it has told nobody, and workers without it would hold its address for ever
    while os.getppid() == starter:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)


def __getattr__(name: str) -> Any:
    # the protocol's limits are known in the worker alone
    if name != "Protocol":
        raise AttributeError(name)
    return _protocol()


@cache
def _protocol() -> Any:
    service = _service()
    return bounded_protocol(service.spec, service.answers, *answer_checks(service))
