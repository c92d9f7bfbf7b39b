"""All processes of a world, with their folders and addresses."""

import os
import random
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from walle_deploy.identity.signing import SigningKey
from walle_deploy.model.profile import DeviceProfile
from walle_deploy.release.commands import ReleaseCommands
from walle_deploy.store.opening import open_store
from walle_deploy.testing.chaos.plan import TASK, WorldPlan, version_name
from walle_deploy.testing.chaos.program import Program
from walle_deploy.testing.chaos.versions import tag_versions
from walle_deploy.trust.repository import TrustedRepository
from walle_stream.errors import ChaosError

MARK: Final = "WALLE_CHAOS"
"""Environment variable of every process of a campaign; its value is the campaign's folder."""

# Below the ports that the system gives to clients: while a service is down, no client may take its
# port, and no device may connect to itself.
_PORTS: Final = (20_000, 32_000)
_HOST: Final = "127.0.0.1"
_SYSTEMS: Final = ("android", "android", "ios")
_SERVICE: Final = """\
apiVersion: walle/v1
kind: ReleaseService
metadata: {name: chaos}
spec:
  poll: 100ms
  lease: 2s
  authentication: {mode: tokens, keys: keys.json, issuer: chaos}
"""


class World:
    """Folders, addresses and programs of one life. One thread."""

    def __init__(self, plan: WorldPlan, folder: Path, store: str, mark: str, life: int = 1) -> None:
        """Make group, repository, store and profiles; blocks, and starts nothing.

        Args:
            plan: Size of the world.
            folder: Made here.
            store: Address of an empty release store; empty for a file in the folder.
            mark: Value of ``MARK``.
            life: Number of the life, which changes the ports.
        """
        self.plan = plan
        self.folder = folder
        folder.mkdir(parents=True)
        self.store = store or str(folder / "releases.db")
        self.group, self.repository = folder / "group", folder / "repo"
        self.environ = {
            **os.environ,
            "PYTHONHASHSEED": "0",
            MARK: mark,
            "WALLE_CACHE": str(folder / "cache"),
            "WALLE_RELEASES": self.store,
        }
        tag_versions(self.group, folder / "ipv", plan.versions)
        repository = TrustedRepository.create(self.repository)
        self._adopt_first()
        (folder / "service.yaml").write_text(_SERVICE)
        SigningKey.create("chaos").write(folder / "signing.json", folder / "keys.json")
        (folder / "root.json").write_bytes(repository.root())
        # a seed cannot tell free ports
        ports = _free_ports(plan.services + 1, random.Random(f"{os.getpid()}/{life}"))  # noqa: S311
        self._files_port, self._service_ports = ports[0], ports[1:]
        self.files = Program("files", folder, self.environ)
        self.services = [
            Program(f"service-{n}", folder, self.environ) for n in range(len(ports[1:]))
        ]
        self.hosts = [
            Program(f"host-{number}", folder, self.environ) for number in range(plan.hosts)
        ]
        for number in range(plan.hosts):
            lines = [msgspec.json.encode(each).decode() for each in self.profiles(number)]
            (folder / f"profiles-{number}.jsonl").write_text("\n".join(lines) + "\n")

    def profiles(self, host: int) -> list[DeviceProfile]:
        """Return the profiles of a host's devices, without their tasks.

        Args:
            host: Number of the host, from 0.
        """
        numbers = range(host, self.plan.devices, self.plan.hosts)
        return [
            DeviceProfile(f"device-{number:07d}", "shop", os=_SYSTEMS[number % len(_SYSTEMS)])
            for number in numbers
        ]

    def data_dir(self, host: int) -> Path:
        """Return a host's data directory."""
        return self.folder / f"data-{host}"

    def service_port(self, number: int) -> int:
        """Return the port of a release service."""
        return self._service_ports[number]

    @property
    def lasting(self) -> Mapping[Program, tuple[str, ...]]:
        """All programs that run until they are stopped, with their command lines."""
        found = {self.files: self._files_command()}
        for number, service in enumerate(self.services):
            found[service] = self._service_command(number)
        for number, host in enumerate(self.hosts):
            found[host] = self.host_command(number)
        return found

    def host_command(self, number: int, *, is_paced: bool = True) -> tuple[str, ...]:
        """Return the command line of a host.

        Args:
            number: Number of the host.
            is_paced: Use the plan's rate; otherwise all remaining events come at once.
        """
        port = self._service_ports[number % len(self._service_ports)]
        command = ["fleet", "shop", "--service", f"http://{_HOST}:{port}", "--json"]
        command.append("--allow-empty")  # every run of a bad version fails
        command += [
            "--root",
            str(self.folder / "root.json"),
            "--scenario",
            "shop",
            "--every",
            "300ms",
        ]
        command += ["--profiles", str(self.folder / f"profiles-{number}.jsonl")]
        command += ["--data-dir", str(self.data_dir(number))]
        command += ["--device-key", str(self.folder / "signing.json")]
        for setting in source_settings(self.plan, self.plan.rate if is_paced else 0):
            command += ["--set", setting]
        return (*command, "--set", "spec.reports.every=300ms")

    def publish_command(self, number: int) -> tuple[str, ...]:
        """Return the command line that publishes a version."""
        ref = f"{TASK}@{version_name(number)}"
        folders = ("--group", str(self.group), "--repository", str(self.repository))
        return ("release", "publish", ref, *folders)

    def close(self) -> None:
        """Kill and reap all processes."""
        for program in (*self.hosts, *self.services, self.files):
            program.close()

    def _adopt_first(self) -> None:
        # in a separate process, because this one has the user's environment
        done = subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-P", "-m", "walle_stream.cli", *self.publish_command(1)],
            env=self.environ,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise ChaosError(f"publishing ended with {done.returncode}: {done.stderr.decode()}")
        with closing(open_store(self.store)) as store:
            ReleaseCommands(store, "campaign").adopt(
                TASK, version_name(1), "the first version of all devices"
            )

    def _files_command(self) -> tuple[str, ...]:
        return ("repository", "serve", str(self.repository), "--port", str(self._files_port))

    def _service_command(self, number: int) -> tuple[str, ...]:
        command = ("serve", str(self.folder / "service.yaml"), "--repository", str(self.repository))
        files = f"http://{_HOST}:{self._files_port}/"
        return (*command, "--files", files, "--listen", f"{_HOST}:{self._service_ports[number]}")


def source_settings(plan: WorldPlan, rate: int = 0) -> list[str]:
    """Return the ``--set`` values of the events, the same for all hosts.

    Args:
        plan: Size of the world.
        rate: Events per second; 0 for no limit.
    """
    found = [
        f"spec.source.devices={plan.devices}",
        f"spec.source.sessions={plan.sessions}",
        f"spec.source.seed={plan.seed}",
        "spec.source.payloadBytes=0",
        "spec.runtime.partitions=4",
        "spec.runtime.batchEvents=50",
        "spec.state.journalEvents=300",
    ]
    return [*found, f"spec.source.rate={rate}"] if rate else found


def _free_ports(count: int, chance: random.Random) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        port = chance.randrange(*_PORTS)
        with socket.socket() as tried:
            try:
                tried.bind((_HOST, port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found
