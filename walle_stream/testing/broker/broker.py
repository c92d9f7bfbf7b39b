"""A single broker for tests: its addresses and its faults."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from walle_stream.errors import BrokerError, BrokerMissingError
from walle_stream.testing.broker.certificates import Certificates, ClientFiles
from walle_stream.testing.broker.node import Node, with_log
from walle_stream.testing.broker.providers import find_provider
from walle_stream.testing.broker.ready import round_trip
from walle_stream.testing.broker.settings import Listener, Ports, as_environment, single_settings


class Broker:
    """A running broker, made by ``open_broker``. For one thread.

    Its faults (``kill``, ``pause``, ...) need a broker that the tests own. With a given broker they
    raise ``BrokerMissingError``, and the test is skipped.
    """

    def __init__(
        self,
        kind: str,
        addresses: Mapping[Listener, str],
        certificates: Certificates | None = None,
        node: Node | None = None,
        files: ClientFiles | None = None,
    ) -> None:
        """Assemble a broker from its parts.

        Args:
            kind: ``container``, ``jdk`` or ``given``.
            addresses: ``host:port`` of each existing listener, by kind.
            certificates: The CA of a broker that the tests own.
            node: The server of a broker that the tests own.
            files: Client files for a given broker.
        """
        self.kind = kind
        self._addresses = dict(addresses)
        self._certificates = certificates
        self._node = node
        self._files = files
        self._is_paused = False

    def address(self, listener: Listener = "plain") -> str:
        """Return ``host:port``; for several given brokers, separated by commas.

        Raises:
            BrokerMissingError: A given broker has no listener of that kind.
        """
        if listener not in self._addresses:
            raise BrokerMissingError(f"the broker in WALLE_KAFKA has no listener {listener!r}")
        return self._addresses[listener]

    @property
    def certificates(self) -> Certificates:
        """The CA that signed the server's key, which makes valid and invalid client files.

        Raises:
            BrokerMissingError: The broker was given, and its CA is not ours.
        """
        if self._certificates is None:
            raise BrokerMissingError("the broker in WALLE_KAFKA has a CA of its own")
        return self._certificates

    def files(self, client: str = "client") -> ClientFiles:
        """Return the PEM files with which a client connects to a TLS listener.

        Args:
            client: The client's common name, for a broker that the tests own.
        """
        return self._files or self.certificates.client(client)

    def options(self, listener: Listener = "plain", client: str = "client") -> dict[str, Any]:
        """Return the keyword arguments with which a client of kafka-python connects.

        Args:
            listener: Kind of listener.
            client: Common name of the client's certificate, if the listener asks for one.

        Raises:
            BrokerMissingError: A given broker has no such listener.
        """
        options: dict[str, Any] = {"bootstrap_servers": self.address(listener).split(",")}
        if listener != "plain":
            files = self.files(client)
            options |= {"security_protocol": "SSL", "ssl_cafile": str(files.ca)}
            if listener == "mutual":
                options |= {"ssl_certfile": str(files.cert), "ssl_keyfile": str(files.key)}
        return options

    def any_options(self) -> dict[str, Any]:
        """Return ``options`` for the first listener, for a test's own clients."""
        return self.options(next(iter(self._addresses)))

    # Faults

    def kill(self) -> None:
        """Kill it with SIGKILL: unwritten data are lost, connections are reset."""
        self._own.kill()

    def start(self) -> None:
        """Start it again on the same data and wait until it is ready; blocks for seconds.

        Raises:
            BrokerError: The broker did not start.
        """
        self._own.start()
        self.await_ready()

    def restart(self) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Freeze it: it accepts connections but does not answer."""
        self._own.pause()
        self._is_paused = True

    def resume(self) -> None:
        """Continue after ``pause``."""
        self._own.resume()
        self._is_paused = False

    def heal(self) -> None:
        """Undo all faults of a test; does nothing if there are none. May block.

        Raises:
            BrokerError: The broker did not start.
        """
        if self._node is None:
            return
        if self._is_paused:
            self.resume()
        if not self._node.is_running:
            self.start()

    @property
    def is_running(self) -> bool:
        """Whether its process is running."""
        return self._own.is_running

    def await_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until a produced record is consumed; blocks.

        Args:
            timeout_s: Longest wait.

        Raises:
            BrokerError: No record came back in time; the message has the log's end.
        """
        try:
            round_trip(self.any_options(), timeout_s=timeout_s)
        except BrokerError as error:
            if self._node is None:
                raise
            raise BrokerError(with_log(str(error), self._node)) from error

    def close(self) -> None:
        """End a broker that the tests own and delete its data; may be called twice."""
        if self._node is not None:
            self._node.close()

    def __enter__(self) -> Self:
        """Return the broker."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the broker."""
        self.close()

    @property
    def _own(self) -> Node:
        if self._node is None:
            raise BrokerMissingError("the broker in WALLE_KAFKA takes no faults from tests")
        return self._node


def open_broker(folder: Path) -> Broker:
    """Return a broker that is ready; blocks for some seconds.

    The first available one of: the broker at ``WALLE_KAFKA`` (with ``WALLE_KAFKA_CA``, and
    ``_CERT`` and ``_KEY`` for mutual TLS), a container if Docker answers, a process of the JDK.

    Args:
        folder: For certificates, data and log of a broker of our own.

    Raises:
        BrokerError: A broker is available but did not start.
        BrokerMissingError: No broker is available; the message says why.
    """
    given = os.environ.get("WALLE_KAFKA")
    if given:
        broker = _given(given)
        broker.await_ready(timeout_s=20.0)
        return broker
    folder = folder.absolute()  # Docker requires an absolute path
    provider = find_provider()
    certificates = Certificates(folder / "certificates")
    ports = Ports.draw()
    files = certificates.server_folder
    settings = single_settings(ports, provider.secrets(files), provider.bind)
    clients: dict[Listener, int] = {
        "plain": ports.plain,
        "tls": ports.tls,
        "mutual": ports.mutual,
        "sasl": ports.sasl,
    }
    node = provider.node(folder / "broker", files, as_environment(settings), *clients.values())
    addresses = {name: f"127.0.0.1:{port}" for name, port in clients.items()}
    broker = Broker(provider.name, addresses, certificates, node)
    try:
        broker.start()
    except BaseException:
        broker.close()
        raise
    return broker


def _given(address: str) -> Broker:
    ca, cert, key = (os.environ.get(f"WALLE_KAFKA_{each}", "") for each in ("CA", "CERT", "KEY"))
    if not ca:
        return Broker("given", {"plain": address})
    # a client with a certificate can use listeners that ask for one and listeners that do not
    kinds: tuple[Listener, ...] = ("mutual", "tls") if cert else ("tls",)
    files = ClientFiles(Path(ca), Path(cert), Path(key))
    return Broker("given", dict.fromkeys(kinds, address), files=files)
