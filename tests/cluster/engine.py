"""A Docker engine with networks of its own: an ordinary one, or the one of ``.ci/kafka.sh``.

Everything goes through the command ``docker``. Nothing here talks to a container by its address:
on some machines only another container reaches it.
"""

import secrets
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from walle_stream.testing.broker.container import OWNER_LABEL, owner

ROOT: Final = Path(__file__).parents[2]

_SUBNETS: Final = range(100, 200)
_TAKEN: Final = "overlaps"


class EngineError(Exception):
    """Docker refused a command, or a command in a container failed."""


def docker(*arguments: str, check: bool = True) -> str:
    """Run a command of ``docker`` and return what it printed; blocks.

    Raises:
        EngineError: It failed, unless ``check`` is false.
    """
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise EngineError(f"docker {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


@cache
def node_image() -> str:
    """Return the name of the image of a node that has this checkout's code, and no other."""
    build = ROOT / "deploy/ray/image/build"
    return subprocess.run(
        [build, "--name"], capture_output=True, text=True, check=True
    ).stdout.strip()


def why_missing() -> str:
    """Return why no cluster can be started here, in one line; empty where it can."""
    try:
        docker("version", "--format", "{{.Server.Version}}")
    except (OSError, EngineError):
        return "Docker does not answer"
    if not docker("images", "-q", node_image()):
        return f"Docker has no image {node_image()} of this checkout: .ci/cluster.sh makes it"
    # a wrong clock is compiled
    return "" if shutil.which("cc") else "there is no C compiler (cc) on this machine"


class Network:
    """A network of containers, without a way out. They and it end with ``close``, or with us.

    The maker of the next network removes the remains of a killed process.
    """

    def __init__(self) -> None:
        """Make it, at addresses that no other network of the engine has.

        Raises:
            EngineError: Docker refused it.
        """
        _remove_left()
        self._name = f"walle-{secrets.token_hex(4)}"
        for number in _SUBNETS:
            self._prefix = f"10.199.{number}"
            try:
                docker(
                    *("network", "create", "--internal", "--subnet", f"{self._prefix}.0/24"),
                    *("--label", f"{OWNER_LABEL}={owner()}", self._name),
                )
            except EngineError as error:
                if _TAKEN not in str(error) or number == _SUBNETS[-1]:
                    raise
            else:
                break
        self._hosts: dict[str, int] = {}

    def address(self, host: int) -> str:
        """Return an address of the network.

        Args:
            host: Its last number, 2 to 254.
        """
        return f"{self._prefix}.{host}"

    def container(self, name: str) -> str:
        """Return what the engine calls a container of this network."""
        return f"{self._name}-{name}"

    def start(
        self,
        name: str,
        host: int,
        image: str,
        command: Sequence[str] = (),
        *,
        environ: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        """Start a container; those that are started later find it by its name, when it is dead too.

        Args:
            name: Of the container, within this network.
            host: Its address' last number.
            image: From which.
            command: Instead of the image's own.
            environ: More variables.
            options: Of ``docker run``.
        """
        self._hosts[name] = host
        variables = [f"--env={key}={value}" for key, value in (environ or {}).items()]
        # Docker's own names end with a container, and a look-up of one waits for 10 s or 20 s
        known = [f"--add-host={each}:{self.address(at)}" for each, at in self._hosts.items()]
        docker(
            *(
                "run",
                "-d",
                "--pull",
                "never",
                "--init",
                "--name",
                self.container(name),
                "--hostname",
                name,
            ),
            *("--network", self._name, "--network-alias", name, "--ip", self.address(host)),
            *("--label", f"{OWNER_LABEL}={owner()}", *variables, *known, *options, image, *command),
        )

    def close(self) -> None:
        """Remove the containers and the network; may be called twice."""
        if self._hosts:
            docker("rm", "-f", "-v", *map(self.container, self._hosts), check=False)
        self._hosts = {}
        docker("network", "rm", self._name, check=False)


def _remove_left() -> None:
    shape = f'{{{{.Name}}}} {{{{.Label "{OWNER_LABEL}"}}}}'
    found = docker("network", "ls", "--filter", f"label={OWNER_LABEL}", "--format", shape)
    for line in found.splitlines():
        name, whose = line.split()
        host, _, process = whose.rpartition(":")
        if host == owner().rpartition(":")[0] and not Path(f"/proc/{process}").exists():
            of_it = docker("ps", "-aq", "--filter", f"network={name}").split()
            if of_it:
                docker("rm", "-f", "-v", *of_it, check=False)
            docker("network", "rm", name, check=False)
