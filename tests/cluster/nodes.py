"""Machines that are containers: started, killed, frozen; ``faults`` breaks what is inside them."""

import secrets
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.cluster.engine import EngineError, Network, docker, node_image

CONTROL: Final = "control"
"""Where a user sits: ``ray up`` is called there. No node of the cluster."""
HEAD: Final = "head"
HOME: Final = "/kit"
"""Where every machine finds the kit's folder."""
SMALL_DISK: Final = "/small"
"""A disk of every machine that can be filled; it does not outlive the machine's death."""

type Done = subprocess.CompletedProcess[str]
type Started = subprocess.Popen[bytes]

_CONTROL_HOST: Final = 9
_FIRST_HOST: Final = 10
_MEMORY: Final = "3g"
_SHARED_MEMORY: Final = "256m"
_SMALL_DISK_SIZE: Final = "128m"


class Nodes:
    """A control machine, a head and workers that sshd waits on; Ray is not started yet."""

    def __init__(self, network: Network, folder: Path, workers: int = 2) -> None:
        """Start them; blocks for a second or two.

        Args:
            network: Where to.
            folder: Mounted at ``HOME`` in all of them, for reading; its ``ssh`` has the user's key
                afterwards, its ``token`` the cluster's.
            workers: How many.

        Raises:
            EngineError: Docker refused it.
        """
        self._network = network
        self.folder = folder.absolute()
        """The folder that all nodes have at ``HOME``."""
        self.workers = [f"worker-{number}" for number in range(1, workers + 1)]
        """Names of the workers."""
        self._make_keys()
        names = [CONTROL, HEAD, *self.workers]
        with ThreadPoolExecutor(len(names)) as pool:
            list(pool.map(self._make, names, range(_CONTROL_HOST, _CONTROL_HOST + len(names))))

    def address(self, name: str) -> str:
        """Return a node's address."""
        return self._network.address(_FIRST_HOST + [HEAD, *self.workers].index(name))

    # Commands

    def run(self, name: str, *command: str, check: bool = True, timeout_s: float = 120.0) -> Done:
        """Run a command on a machine; blocks.

        Args:
            name: Of the machine.
            command: With its arguments.
            check: Whether a failure is an error.
            timeout_s: Longest time; the command goes on in the container after that.

        Raises:
            EngineError: It failed, or took too long.
        """
        try:
            done = subprocess.run(
                self._exec(name, *command),
                capture_output=True,
                text=True,
                check=False,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired as error:
            raise EngineError(f"{name}: {' '.join(command)}: no end in {timeout_s:g} s") from error
        if check and done.returncode:
            said = f"{done.stdout}\n{done.stderr}".strip()
            raise EngineError(f"{name}: {' '.join(command)}: exit {done.returncode}\n{said}")
        return done

    def begin(self, name: str, *command: str, said: Path) -> Started:
        """Start a command on a machine, and return at once.

        Args:
            name: Of the machine.
            command: With its arguments.
            said: File for what it prints.
        """
        with said.open("wb") as output:
            return subprocess.Popen(self._exec(name, *command), stdout=output, stderr=output)

    def fetch(self, name: str, path: str, to: Path) -> None:
        """Copy a folder of a machine, which may be dead, as far as it is there.

        Args:
            name: Of the machine.
            path: There.
            to: Here; made where it is missing.
        """
        to.mkdir(parents=True, exist_ok=True)
        docker("cp", f"{self._network.container(name)}:{path}", str(to), check=False)

    def _exec(self, name: str, *command: str) -> Sequence[str]:
        return ("docker", "exec", self._network.container(name), *command)

    # Faults

    def kill(self, name: str) -> None:
        """End every process of a machine with SIGKILL; its disk stays."""
        docker("kill", self._network.container(name))

    def start(self, name: str) -> None:
        """Start a machine that was killed: sshd alone, nothing of Ray."""
        docker("start", self._network.container(name))

    def pause(self, name: str) -> None:
        """Freeze every process of a machine: it hangs, and its connections stay."""
        docker("pause", self._network.container(name))

    def resume(self, name: str) -> None:
        """Let it go on."""
        docker("unpause", self._network.container(name))

    # Making

    def _make(self, name: str, host: int) -> None:
        mounts = [f"--volume={self.folder}:{HOME}:ro"]
        mounts.append(f"--volume={self.folder}/ssh/id.pub:/etc/ssh/authorized_keys:ro")
        limits = ["--memory", _MEMORY, "--shm-size", _SHARED_MEMORY, "--cap-add", "NET_ADMIN"]
        limits += ["--tmpfs", f"{SMALL_DISK}:size={_SMALL_DISK_SIZE}"]
        self._network.start(name, host, node_image(), options=[*mounts, *limits])

    def _make_keys(self) -> None:
        ssh = self.folder / "ssh"
        ssh.mkdir(parents=True, exist_ok=True)
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ssh / "id")]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        token = self.folder / "token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32))
