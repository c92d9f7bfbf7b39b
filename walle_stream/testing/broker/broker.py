"""One broker for tests: where clients find it, and what tests do to it."""

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
    """A broker that runs, made by ``open_broker``. One thread.

    Its faults (``kill``, ``pause``, ...) are for brokers that the tests own; with one that
    was given they raise ``BrokerMissingError``, and the test is skipped.
    """

    def __init__(
        self,
        kind: str,
        addresses: Mapping[Listener, str],
        certificates: Certificates | None = None,
        node: Node | None = None,
        files: ClientFiles | None = None,
    ) -> None:
        """Keep the parts.

        Args:
            kind: ``container``, ``jdk`` or ``given``.
            addresses: ``host:port`` by kind of listener; those it has.
            certificates: The CA of a broker that the tests own.
            node: The server of one.
            files: What a broker that was given wants from clients.
        """
        self.kind = kind
        self._addresses = dict(addresses)
        self._certificates = certificates
        self._node = node
        self._files = files
        self._is_paused = False

    def address(self, listener: Listener = "plain") -> str:
        """Return ``host:port``, of several brokers that were given with commas between.

        Raises:
            BrokerMissingError: A broker that was given has none of that kind.
        """
        if listener not in self._addresses:
            raise BrokerMissingError(f"the broker in WALLE_KAFKA has no listener {listener!r}")
        return self._addresses[listener]

    @property
    def certificates(self) -> Certificates:
        """The CA that signed the server's key, for clients that are right or wrong.

        Raises:
            BrokerMissingError: The broker was given: its CA is another's.
        """
        if self._certificates is None:
            raise BrokerMissingError("the broker in WALLE_KAFKA has a CA of its own")
        return self._certificates

    def files(self, client: str = "client") -> ClientFiles:
        """Return the PEM files that a client connects to a TLS listener with.

        Args:
            client: Its common name, for a broker that the tests own.
        """
        return self._files or self.certificates.client(client)

    def options(self, listener: Listener = "plain", client: str = "client") -> dict[str, Any]:
        """Return the keyword arguments that make a client of kafka-python connect.

        Args:
            listener: To which listener.
            client: The common name of its certificate, where the listener asks for one.

        Raises:
            BrokerMissingError: A broker that was given has no such listener.
        """
        options: dict[str, Any] = {"bootstrap_servers": self.address(listener).split(",")}
        if listener != "plain":
            files = self.files(client)
            options |= {"security_protocol": "SSL", "ssl_cafile": str(files.ca)}
            if listener == "mutual":
                options |= {"ssl_certfile": str(files.cert), "ssl_keyfile": str(files.key)}
        return options

    def any_options(self) -> dict[str, Any]:
        """Return the same for the first listener that there is: for a test's own business."""
        return self.options(next(iter(self._addresses)))

    # Faults

    def kill(self) -> None:
        """``kill -9``: what it has not written to disk is lost, connections are reset."""
        self._own.kill()

    def start(self) -> None:
        """Start it again on the same data, and wait until it is ready; blocks for seconds.

        Raises:
            BrokerError: It did not come up.
        """
        self._own.start()
        self.await_ready()

    def restart(self) -> None:
        """``kill`` and ``start``."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Stop it in the middle: it accepts connections, and answers nothing."""
        self._own.pause()
        self._is_paused = True

    def resume(self) -> None:
        """Let it go on."""
        self._own.resume()
        self._is_paused = False

    def heal(self) -> None:
        """Bring it back from whatever a test did to it; nothing when all is well. May block.

        Raises:
            BrokerError: It did not come up.
        """
        if self._node is None:
            return
        if self._is_paused:
            self.resume()
        if not self._node.is_running:
            self.start()

    @property
    def is_running(self) -> bool:
        """Whether its process is there."""
        return self._own.is_running

    def await_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until a record that was produced is consumed; blocks.

        Args:
            timeout_s: Longest wait.

        Raises:
            BrokerError: It did not in time; the message has the log's end.
        """
        try:
            round_trip(self.any_options(), timeout_s=timeout_s)
        except BrokerError as error:
            if self._node is None:
                raise
            raise BrokerError(with_log(str(error), self._node)) from error

    def close(self) -> None:
        """End a broker that the tests own, with its data; may be called twice."""
        if self._node is not None:
            self._node.close()

    def __enter__(self) -> Self:
        """Return the broker."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    @property
    def _own(self) -> Node:
        if self._node is None:
            raise BrokerMissingError("the broker in WALLE_KAFKA is not ours to break")
        return self._node


def open_broker(folder: Path) -> Broker:
    """Return a broker that is ready; blocks for some seconds.

    In this order: the one at ``WALLE_KAFKA`` (with ``WALLE_KAFKA_CA``, and ``_CERT`` and
    ``_KEY`` for mutual TLS), a container where Docker answers, a process of the JDK.

    Args:
        folder: For certificates, data and log of one of our own.

    Raises:
        BrokerError: There is one, but it did not come up.
        BrokerMissingError: None of them is here; the message says why.
    """
    given = os.environ.get("WALLE_KAFKA")
    if given:
        broker = _given(given)
        broker.await_ready(timeout_s=20.0)
        return broker
    folder = folder.absolute()  # Docker takes no other
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
    # with a certificate of its own a client gets in where one is asked for, and where none is
    kinds: tuple[Listener, ...] = ("mutual", "tls") if cert else ("tls",)
    files = ClientFiles(Path(ca), Path(cert), Path(key))
    return Broker("given", dict.fromkeys(kinds, address), files=files)
