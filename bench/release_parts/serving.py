"""The service and its floor as processes of their own, each on one core."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from apart import ROOT

_SERVICE: Final = """
import argparse, os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
from walle_deploy.cli.serve import add
parser = argparse.ArgumentParser()
add(parser.add_subparsers())
options = parser.parse_args(["serve", "--json", "--listen", "127.0.0.1:0", *sys.argv[2:]])
raise SystemExit(options.run(options))
"""
_FLOOR: Final = """
import json, os, socket, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
import uvicorn
START = {"type": "http.response.start", "status": 204, "headers": []}
END = {"type": "http.response.body", "body": b""}
async def app(scope, receive, send):
    await send(START)
    await send(END)
listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
print(json.dumps({"url": "http://127.0.0.1:%d" % listener.getsockname()[1]}), flush=True)
config = uvicorn.Config(app, loop="uvloop", http="httptools", access_log=False, ws="none",
    server_header=False, date_header=False, log_level="warning", lifespan="off")
uvicorn.Server(config).run(sockets=[listener])
"""


class Served(NamedTuple):
    """A process that answers."""

    address: tuple[str, int]
    pid: int

    def cpu_s(self) -> float:
        """Return the CPU seconds of all its threads."""
        nanoseconds = 0
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            nanoseconds += int((task / "schedstat").read_text(encoding="ascii").split()[0])
        return nanoseconds / 1e9

    def rss_mb(self) -> float:
        """Return its memory, MB."""
        pages = Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def service(core: int, *arguments: str) -> Iterator[Served]:
    """Run the release service until left.

    Args:
        core: That it may use.
        arguments: Of ``walle serve``.
    """
    with _served(_SERVICE, core, *arguments) as served:
        yield served


@contextmanager
def floor(core: int) -> Iterator[Served]:
    """Run the least that uvicorn can do, an application that answers 204, until left.

    Args:
        core: That it may use.
    """
    with _served(_FLOOR, core) as served:
        yield served


@contextmanager
def _served(code: str, core: int, *arguments: str) -> Iterator[Served]:
    paths = (ROOT, ROOT / "connectors", ROOT / "deploy")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [sys.executable, "-c", code, str(core), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        host, _, port = json.loads(process.stdout.readline())["url"][7:].rpartition(":")
        yield Served((host, int(port)), process.pid)
    finally:
        process.terminate()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
