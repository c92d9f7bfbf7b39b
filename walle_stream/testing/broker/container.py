"""A Kafka server in a Docker container, through testcontainers."""

import gc
import os
import socket
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from walle_stream.errors import BrokerMissingError

SECRETS: Final = "/etc/kafka/secrets"
"""Folder in a container with the given files."""

OWN_IMAGE: Final = "walle-kafka:4.1.1"
"""The image that ``deploy/kafka/image`` makes, for machines without access to a registry."""
PUBLIC_IMAGE: Final = "apache/kafka:4.1.1"
"""The image to use if our own is missing."""

OWNER_LABEL: Final = "walle.test.owner"
"""Label with the process that owns a container; later processes remove containers of dead ones."""


class ContainerNode:
    """A server in a container of its own; on Linux it uses the machine's network."""

    def __init__(
        self, image: str, files: Path, environment: Mapping[str, str], *ports: int
    ) -> None:
        """Prepare the server; ``start`` makes the container.

        Args:
            image: Our image or the public one; both have the same interface.
            files: Folder that is mounted read-only at ``SECRETS``.
            environment: ``KAFKA_*`` settings.
            ports: Ports for clients, at 127.0.0.1.
        """
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - heavy

        _quiet()
        options: dict[str, Any] = {"labels": {OWNER_LABEL: owner()}}
        if has_host_network():
            options["network_mode"] = "host"
        self._maker = (
            DockerContainer(image)
            .with_envs(**environment)
            .with_volume_mapping(str(files), SECRETS, "ro")
            .with_kwargs(**options)
        )
        if not has_host_network():
            for port in ports:
                self._maker.with_bind_ports(port, port)
        self._container: Any = None

    def start(self) -> None:
        """Make the container, or start the one that was killed."""
        if self._container is None:
            self._maker.start()
            self._container = self._maker.get_wrapped_container()
        else:
            self._container.start()

    def kill(self) -> None:
        """End the server with SIGKILL; the container keeps its files."""
        if self.is_running:
            self._container.kill()
            self._container.wait()

    def pause(self) -> None:
        """Freeze the container."""
        self._container.pause()

    def resume(self) -> None:
        """Thaw the container, if it is frozen."""
        if self._state() == "paused":
            self._container.unpause()

    def close(self) -> None:
        """Remove the container."""
        if self._container is not None:
            self._container = None
            self._maker.stop()

    @property
    def is_running(self) -> bool:
        """Whether its process exists, frozen or not."""
        return self._state() in {"running", "paused"}

    @property
    def log(self) -> str:
        """The last lines of its log."""
        if self._container is None:
            return ""
        text: bytes = self._container.logs(tail=8)
        return text.decode(errors="replace").strip()

    def _state(self) -> str:
        if self._container is None:
            return ""
        self._container.reload()
        return str(self._container.status)


def owner() -> str:
    """Return the value of ``OWNER_LABEL`` for containers of this process."""
    return f"{socket.gethostname()}:{os.getpid()}"


def has_host_network() -> bool:
    """Return whether containers may use this machine's own network."""
    return sys.platform == "linux"


def find_image(wanted: str = "") -> str:
    """Return the image to use; blocks while it is pulled.

    Also removes containers of test processes that were killed.

    Args:
        wanted: Name of the image; empty for our image if the engine has it, else the public one.

    Raises:
        BrokerMissingError: testcontainers is not installed, Docker does not answer, or Docker has
            no image and cannot fetch one.
    """
    try:
        import docker  # noqa: PLC0415 - heavy
        import testcontainers.core.container  # noqa: F401, PLC0415 - heavy
    except ImportError as error:
        raise BrokerMissingError(f"{error.name} is not installed") from error
    client = _engine(docker)
    try:
        _remove_orphans(client, docker.errors.APIError)
        return _image_of(client, docker.errors.DockerException, wanted)
    finally:
        client.close()


def _engine(docker: Any) -> Any:
    try:
        return docker.from_env()  # asks the engine for its version
    except docker.errors.DockerException:
        pass
    # collect the half-open connection here, so that its warning does not fail a strict test
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    raise BrokerMissingError("Docker does not answer")


def _image_of(client: Any, failure: type[Exception], wanted: str) -> str:
    names = [wanted] if wanted else [OWN_IMAGE, PUBLIC_IMAGE]
    for name in names:
        with suppress(failure):
            client.images.get(name)
            return name
    try:
        client.images.pull(names[-1])
    except failure as error:
        raise BrokerMissingError(
            f"Docker has no image {names[0]} and cannot fetch {names[-1]}: "
            "make one by deploy/kafka/image"
        ) from error
    return names[-1]


def _remove_orphans(client: Any, failure: type[Exception]) -> None:
    """Remove the containers of this machine's dead test processes."""
    labelled = {"label": OWNER_LABEL}
    for container in client.containers.list(all=True, filters=labelled, ignore_removed=True):
        host, _, process = container.labels[OWNER_LABEL].partition(":")
        if host != socket.gethostname() or not process.isdigit():
            continue
        try:
            os.kill(int(process), 0)
        except ProcessLookupError:
            # other test processes may be removing it, too
            with suppress(failure):
                container.remove(force=True)
        except PermissionError:
            pass  # a living process of another user


def _quiet() -> None:
    """Disable the helper container of testcontainers, which would be another image to fetch."""
    from testcontainers.core.config import testcontainers_config  # noqa: PLC0415 - heavy

    testcontainers_config.ryuk_disabled = True
