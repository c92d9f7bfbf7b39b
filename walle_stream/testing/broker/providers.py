"""Who makes the servers: a Docker engine, or this machine's JDK."""

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
    """Makes servers of Kafka that belong to the tests."""

    name: str
    """``container`` or ``jdk``."""

    bind: str
    """The address that a server listens at so that 127.0.0.1 reaches it."""

    def secrets(self, given: Path) -> str:
        """Return where a server finds the files in a folder of ours."""

    def node(self, folder: Path, given: Path, environment: Mapping[str, str], *ports: int) -> Node:
        """Return a server that is not started.

        Args:
            folder: For what it keeps on this machine.
            given: Folder of the files that it is given.
            environment: ``KAFKA_*`` settings.
            ports: That clients connect to.
        """


class ContainerProvider:
    """Containers of a Docker engine."""

    name = "container"

    def __init__(self) -> None:
        """Look for the engine and an image: ``WALLE_KAFKA_IMAGE``, ours, the public one; may pull.

        Raises:
            BrokerMissingError: Docker does not answer, or has no image.
        """
        self._image = find_image(os.environ.get("WALLE_KAFKA_IMAGE", ""))
        self.bind = "127.0.0.1" if has_host_network() else "0.0.0.0"  # noqa: S104 - in a container

    def secrets(self, given: Path) -> str:  # noqa: ARG002 - mounted at the same place always
        """Return the place in the container."""
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
            given: Folder of the files that it is given.
            environment: ``KAFKA_*`` settings.
            ports: That clients connect to.
        """
        return ContainerNode(self._image, given, environment, *ports)


class JdkProvider:
    """Processes of this machine's JDK, with jars that Maven fetched."""

    name = "jdk"
    bind = "127.0.0.1"

    def __init__(self) -> None:
        """Look for Java and the jars, which are fetched at the first time: that takes some seconds.

        Raises:
            BrokerMissingError: One of them is missing.
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
        given: Path,  # noqa: ARG002 - a process sees them where they are
        environment: Mapping[str, str],
        *ports: int,  # noqa: ARG002 - a process listens on this machine anyway
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
    """Return Docker where it answers, else the JDK; ``WALLE_KAFKA_PROVIDER`` names the only one.

    Raises:
        BrokerMissingError: Neither is here; the message says what each lacked.
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
    """Return ``deploy/kafka/broker``, of a wheel or a checkout.

    Raises:
        BrokerMissingError: The installation is incomplete.
    """
    beside = Path(str(files("walle_stream"))).parent
    for folder in (beside / "walle_deploy/kafka", beside / "deploy/kafka"):
        if (folder / "broker").exists():
            return folder / "broker"
    raise BrokerMissingError("deploy/kafka is not installed: install walle-stream again")
