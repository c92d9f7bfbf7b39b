"""A small Ray cluster on this machine, for runs that are killed in it.

It is ``ray start --head --block`` with a folder, ports and a token of its own, so that several
clusters can run beside each other. Do not end it by ``ray stop``, which ends every cluster of the
machine.
"""

import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from walle_stream.clock import monotonic_ms
from walle_stream.errors import ChaosError
from walle_stream.errors.extras import how_to_install
from walle_stream.testing.chaos.processes import ProcessId, children_of, command_line, kill

CLUSTER_PREFIX: Final = "walle-ray-"
"""Prefix of the names of clusters' folders."""

_START_TIMEOUT_S: Final = 120.0
_END_TIMEOUT_S: Final = 30.0
_LOOK_S: Final = 0.05
_STARTED: Final = "Ray runtime started"
_STORE_BYTES: Final = 100_000_000
_SAID_MAX: Final = 1_000


def make_cluster_folder() -> Path:
    """Make a folder for a cluster that keeps the paths of its sockets short enough."""
    # a socket's path has at most 107 bytes
    short = Path("/tmp")  # noqa: S108 - the folder in it has an unguessable name
    return Path(tempfile.mkdtemp(prefix=CLUSTER_PREFIX, dir=short))


class RayCluster:
    """A running cluster. For one thread; end it with ``close``."""

    def __init__(self, folder: Path, environ: Mapping[str, str], *, cpus: int) -> None:
        """Start the cluster; blocks until a driver can join it.

        Args:
            folder: Folder with a short path for its temporary files; ``close`` removes it.
            environ: Environment of its processes and workers; Ray's own variables are replaced.
            cpus: Number of workers that run at the same time.

        Raises:
            ChaosError: Ray is not installed, or the cluster does not start.
        """
        self.folder = folder
        self.environ = {
            **{name: value for name, value in environ.items() if not name.startswith("RAY_")},
            # only holders of the token can run code in the cluster
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
            "PYTHONHASHSEED": "0",
            # notices a worker that died before its registration after 30 s instead of 60 s
            "RAY_worker_register_timeout_seconds": "30",
            # prestarted workers would be unused: a run's workers have their own environment
            "RAY_prestart_worker_first_driver": "0",
            # a process's title must not overwrite its environment, which has the campaign's mark
            "SPT_NOENV": "1",
        }
        """Environment of the commands that join the cluster."""
        # without bytecode every process takes twice as long to start
        self.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        self._raylet: ProcessId | None = None
        self._process = self._start(cpus)
        try:
            self.environ["RAY_ADDRESS"] = self._await_start()
        except BaseException:
            self.close()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether the cluster has not ended by itself."""
        return self._process.poll() is None

    @property
    def said(self) -> str:
        """The end of the output of ``ray start``, in one line."""
        return " ".join(self._file.read_text(errors="replace")[-_SAID_MAX:].split())

    def workers(self) -> list[ProcessId]:
        """Return the living worker processes, busy or idle, by number."""
        if self._raylet is None:
            found = children_of(self._process.pid)
            raylets = [each for each in found if "/raylet " in command_line(each)]
            if not raylets:
                return []
            self._raylet = raylets[0]
        return [each for each in children_of(self._raylet.pid) if _is_worker(command_line(each))]

    def close(self) -> None:
        """End all its processes and remove its folder; blocks; may be called twice."""
        children = children_of(self._process.pid)
        workers = self.workers()
        self._process.terminate()
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for each in (*children, *workers):
            kill(each)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, cpus: int) -> "subprocess.Popen[bytes]":
        ray = Path(sys.executable).with_name("ray")
        command = [str(ray), "start", "--head", "--block", "--port=0", f"--num-cpus={cpus}"]
        command += ["--node-ip-address=127.0.0.1", "--include-dashboard=false"]
        command += [f"--object-store-memory={_STORE_BYTES}", "--disable-usage-stats"]
        command += [f"--temp-dir={self.folder}"]
        try:
            with self._file.open("wb") as output:
                return subprocess.Popen(  # noqa: S603 - our own command
                    command,
                    env=self.environ,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    # Ctrl-C must reach only the campaign, which ends the cluster after the run
                    start_new_session=True,
                )
        except OSError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise ChaosError(f"Ray cannot be started ({error}): {how_to_install('ray')}") from error

    @property
    def _file(self) -> Path:
        return self.folder / "said.txt"

    def _await_start(self) -> str:
        deadline_ms = monotonic_ms() + _START_TIMEOUT_S * 1000.0
        address = self.folder / "ray_current_cluster"
        while not address.exists() or _STARTED not in self._file.read_text(errors="replace"):
            if not self.is_alive or monotonic_ms() > deadline_ms:
                raise ChaosError(f"the Ray cluster did not start: {self.said}")
            time.sleep(_LOOK_S)
        return address.read_text().strip()


def _is_worker(line: str) -> bool:
    # the raylet's agents also have titles, and the raylet ends without them
    return "/default_worker.py" in line or (line.startswith("ray::") and "Agent" not in line)
