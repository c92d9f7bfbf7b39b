"""Providers of servers: a Docker engine, or this machine's JDK."""

import importlib.util
import os
import subprocess
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Final, Protocol

from walle_stream.errors import BrokerMissingError
from walle_stream.testing.broker.container import (
    SECRETS,
    ContainerNode,
    find_image,
    has_host_network,
)
from walle_stream.testing.broker.node import Node, ProcessNode


class Provider(Protocol):
    """Maker of Kafka servers that the tests own."""

    name: str
    """``container`` or ``jdk``."""

    bind: str
    """The address at which a server must listen to be reached at 127.0.0.1."""

    def secrets(self, given: Path) -> str:
        """Return the path at which a server finds our folder of files."""

    def node(self, folder: Path, given: Path, environment: Mapping[str, str], *ports: int) -> Node:
        """Return a server that is not started.

        Args:
            folder: For the server's own files on this machine.
            given: Folder of files for the server.
            environment: ``KAFKA_*`` settings.
            ports: Ports for clients.
        """


class ContainerProvider:
    """Containers of a Docker engine."""

    name = "container"

    def __init__(self) -> None:
        """Find the engine and an image: ``WALLE_KAFKA_IMAGE``, ours, or the public one; may pull.

        Raises:
            BrokerMissingError: Docker does not answer, or has no image.
        """
        self._image = find_image(os.environ.get("WALLE_KAFKA_IMAGE", ""))
        self.bind = "127.0.0.1" if has_host_network() else "0.0.0.0"  # noqa: S104 - in a container

    def secrets(self, given: Path) -> str:  # noqa: ARG002 - always mounted at the same path
        """Return the path in the container."""
        return SECRETS

    def node(
        self,
        folder: Path,  # noqa: ARG002 - a container has its own disk
        given: Path,
        environment: Mapping[str, str],
        *ports: int,
    ) -> ContainerNode:
        """Return a container that is not started.

        Args:
            folder: Not used.
            given: Folder of files for the server.
            environment: ``KAFKA_*`` settings.
            ports: Ports for clients.
        """
        return ContainerNode(self._image, given, environment, *ports)


class JdkProvider:
    """Processes of this machine's JDK, with jars that Maven fetched."""

    name = "jdk"
    bind = "127.0.0.1"

    def __init__(self) -> None:
        """Find Java and the jars; the first call fetches the jars, which takes some seconds.

        Raises:
            BrokerMissingError: Java or the jars are missing.
        """
        self._script = broker_script()
        done = subprocess.run(  # noqa: S603 - our own script
            [str(self._script), "check"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it does not say why"])[-1]
            raise BrokerMissingError(last.removeprefix("broker: "))

    def secrets(self, given: Path) -> str:
        """Return the folder itself."""
        return str(given)

    def node(
        self,
        folder: Path,
        given: Path,  # noqa: ARG002 - a process sees this folder itself
        environment: Mapping[str, str],
        *ports: int,  # noqa: ARG002 - a process needs no mapping of ports
    ) -> ProcessNode:
        """Return a process that is not started.

        Args:
            folder: For its data and its log.
            given: Not used.
            environment: ``KAFKA_*`` settings.
            ports: Not used.
        """
        return ProcessNode(self._script, folder, environment)


_KINDS: Final = {each.name: each for each in (ContainerProvider, JdkProvider)}


def find_provider() -> Provider:
    """Return Docker if it answers, else the JDK; ``WALLE_KAFKA_PROVIDER`` selects one of them.

    Raises:
        BrokerMissingError: No provider is available; the message says what each lacks.
    """
    if importlib.util.find_spec("kafka") is None:
        raise BrokerMissingError("kafka-python is not installed: install the extra `kafka`")
    only = os.environ.get("WALLE_KAFKA_PROVIDER")
    if only and only not in _KINDS:
        raise BrokerMissingError(
            f"WALLE_KAFKA_PROVIDER is {only!r}: expected {' or '.join(_KINDS)}"
        )
    reasons = []
    for name, kind in _KINDS.items():
        if only in {None, "", name}:
            try:
                return kind()
            except BrokerMissingError as error:
                reasons.append(f"{name}: {error}")
    raise BrokerMissingError(f"no Kafka broker here: WALLE_KAFKA is not set; {'; '.join(reasons)}")


def broker_script() -> Path:
    """Return ``deploy/kafka/broker`` from a wheel or a checkout.

    Raises:
        BrokerMissingError: The installation is incomplete.
    """
    beside = Path(str(files("walle_stream"))).parent
    for folder in (beside / "walle_deploy/kafka", beside / "deploy/kafka"):
        if (folder / "broker").exists():
            return folder / "broker"
    raise BrokerMissingError("deploy/kafka is not installed: install walle-stream again")
