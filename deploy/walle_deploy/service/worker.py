"""Worker processes of the release service under uvicorn.

uvicorn starts them and starts them anew; each finds its set-up in the environment, as it is a
new process, and has a loop, a table and known devices of its own. They share the socket alone.
"""

import json
import os
import socket
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from uvicorn.supervisors import Multiprocess

from walle_deploy.policy.loading import load_definition
from walle_deploy.service.asgi import App, service_app
from walle_deploy.service.ports import FileTable
from walle_deploy.service.protocol import bounded_protocol
from walle_deploy.service.service import Parts, ReleaseService
from walle_deploy.service.settings import ServiceDefinition, ServiceSpec
from walle_stream.errors import SpecFileError

if TYPE_CHECKING:
    from collections.abc import Callable

_VARIABLE: Final = "WALLE_RELEASE_SERVICE"
_GRACE_S: Final = 10
_BACKLOG: Final = 4_096


def load_settings(file: Path | None) -> ServiceSpec:
    """Load how a service is set up.

    Args:
        file: YAML of ``kind: ReleaseService``; None for the defaults.

    Raises:
        SpecFileError: Something in it is wrong.
    """
    return ServiceSpec() if file is None else load_definition(file, ServiceDefinition).spec


def open_parts(store: str) -> Parts:
    """Open the seams of a service.

    Args:
        store: Path of a table in a ``.json`` file.

    Raises:
        SpecFileError: It names no store that there is.
    """
    if store.endswith(".json"):
        return Parts(FileTable(Path(store)))
    raise SpecFileError(f"--store {store!r} names no store of releases: expected a .json file")


def serve(file: Path | None, store: str, listener: socket.socket, workers: int) -> None:
    """Serve until a signal; blocks. What is at hand is answered first, for 10 s at most.

    Args:
        file: See ``load_settings``.
        store: See ``open_parts``.
        listener: Listens; is closed at the end.
        workers: Processes; 1 serves in this one.

    Raises:
        SpecFileError: The set-up is wrong.
    """
    # what is wrong is said here, once, not by each worker
    spec = load_settings(file)
    open_parts(store)
    os.environ[_VARIABLE] = json.dumps({"file": file and str(file.absolute()), "store": store})
    config = uvicorn.Config(
        f"{__name__}:create_app",
        factory=True,
        http=f"{__name__}:Protocol",
        loop="uvloop",
        workers=workers,
        access_log=False,
        server_header=False,
        date_header=False,
        log_level="warning",
        lifespan="on",
        ws="none",
        backlog=_BACKLOG,
        timeout_keep_alive=spec.limits.keep_alive_ms // 1_000,
        timeout_graceful_shutdown=_GRACE_S,
    )
    if workers == 1:
        uvicorn.Server(config).run(sockets=[listener])
    else:
        Multiprocess(config, sockets=[listener]).run()


@cache
def _service() -> ReleaseService:
    given = json.loads(os.environ[_VARIABLE])
    spec = load_settings(given["file"] and Path(given["file"]))
    return ReleaseService(spec, open_parts(given["store"]))


def create_app() -> App:
    """Return this process's application; uvicorn calls it."""
    return service_app(_service())


def __getattr__(name: str) -> Any:
    # the protocol's limits are known in the worker alone
    made: dict[str, Callable[[], Any]] = {"Protocol": _protocol}
    if name not in made:
        raise AttributeError(name)
    return made[name]()


@cache
def _protocol() -> Any:
    service = _service()
    return bounded_protocol(service.spec, service.answers)
