"""``walle repository serve``: the development server, which keeps its metadata fresh."""

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from walle_deploy.cli.serve import end_on_signals, listen
from walle_deploy.distribution.server import build_app
from walle_deploy.distribution.signed_urls import UrlSigner, read_ring
from walle_deploy.trust.repository import TrustedRepository
from walle_stream.errors import WalleError


def serve(
    repository: TrustedRepository, host: str, port: int, ring: Path, options: argparse.Namespace
) -> int:
    """Serve until a signal, and sign the timestamp again every hour if its key is here.

    Port 0 takes any free port. The ring of keys for exclusive addresses may be missing.

    Raises:
        RefNotFoundError: The repository does not exist.
        SpecFileError: The port is invalid.
        ServiceUnreachableError: The address is in use, or not on this machine.
    """
    repository.status()  # refuses to serve files that cannot be verified
    folder = repository.folder
    signer = UrlSigner(read_ring(ring)) if ring.exists() else None
    app = build_app(folder / "public", folder / "private", signer)
    app.router.lifespan_context = partial(_refreshing, repository)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    listener = listen(address, "--host, --port")
    url = f"http://{host}:{listener.getsockname()[1]}/"
    print(json.dumps({"url": url}) if options.json else f"serving {folder} at {url}", flush=True)
    end_on_signals()
    config = uvicorn.Config(app, log_level="warning", server_header=False)
    # Ctrl-C and SIGTERM end the server, and uvicorn raises them again afterwards
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listener])
    return 0


@asynccontextmanager
async def _refreshing(repository: TrustedRepository, _: Starlette) -> AsyncIterator[None]:
    async def refresh() -> None:
        while True:
            try:
                await asyncio.to_thread(repository.refresh)
            except (WalleError, OSError) as error:
                sys.stderr.write(f"walle: not refreshed: {error}\n")
            await asyncio.sleep(3_600)

    task = asyncio.create_task(refresh())
    yield
    task.cancel()
