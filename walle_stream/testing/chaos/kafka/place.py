"""The broker of a campaign, which can be killed, paused and cut off from single hosts.

Brokers advertise their own addresses, so a link between a host and the broker works only if the
broker advertises the link. Our broker has a listener per host whose advertised port is the host's
link.
"""

import shutil
import socket
from collections.abc import Mapping
from contextlib import suppress
from os import environ
from pathlib import Path
from typing import Any, Final

from walle_stream.errors import BrokerError
from walle_stream.testing.broker import Broker, Certificates, make_topic, open_broker
from walle_stream.testing.broker.node import Node
from walle_stream.testing.broker.providers import find_provider
from walle_stream.testing.broker.settings import Ports, as_environment, single_settings
from walle_stream.testing.link import Link

HOSTS_MAX: Final = 3
"""Number of hosts with a link of their own."""

_SESSION_MS: Final = 3_000
_GIVEN_SESSION_MS: Final = 6_000  # the default minimum of brokers
_CONNECT_S: Final = 0.5


class Place:
    """Broker of a campaign's topics. For one thread."""

    def __init__(self, folder: Path, marks: Mapping[str, str]) -> None:
        """Start a broker on the folder's data, or use the broker in ``WALLE_KAFKA``; blocks.

        Args:
            folder: Folder of the broker, which stays when a campaign is resumed.
            marks: Environment variables of its process.

        Raises:
            BrokerError: The broker did not start.
            BrokerMissingError: No broker is available.
        """
        self.is_ours = not environ.get("WALLE_KAFKA")
        """Whether the campaign owns the broker and may inject faults."""
        self._links: list[Link] = []
        self._node: Node | None = None
        self._broker = self._start(folder, marks) if self.is_ours else open_broker(folder)
        self.session_ms = _SESSION_MS if self.is_ours else _GIVEN_SESSION_MS
        """Session timeout of a host in its group."""

    def _start(self, folder: Path, marks: Mapping[str, str]) -> Broker:
        provider = find_provider()
        # left by a campaign that was killed
        shutil.rmtree(folder / "certificates", ignore_errors=True)
        certificates = Certificates(folder / "certificates")
        ports, more = Ports.draw(), Ports.draw()
        far = (more.plain, more.tls, more.mutual)
        self._links = [Link(("127.0.0.1", port)) for port in far]
        files = certificates.server_folder
        settings = single_settings(ports, provider.secrets(files), provider.bind)
        settings["group.min.session.timeout.ms"] = str(_SESSION_MS)
        for index, (port, link) in enumerate(zip(far, self._links, strict=True)):
            name = f"FAR{index}"
            settings["listeners"] += f",{name}://{provider.bind}:{port}"
            settings["advertised.listeners"] += f",{name}://127.0.0.1:{link.address[1]}"
            settings["listener.security.protocol.map"] += f",{name}:PLAINTEXT"
        environment = {**as_environment(settings), **marks}
        node = provider.node(folder / "broker", files, environment, ports.plain, *far)
        self._node = node
        address = f"127.0.0.1:{ports.plain}"
        broker = Broker(provider.name, {"plain": address}, certificates, node)
        try:
            broker.start()
        except BaseException:
            self._close_links()
            broker.close()
            raise
        return broker

    @property
    def address(self) -> str:
        """``host:port`` without a link, for all processes but hosts."""
        return self._broker.address()

    def address_of(self, host: int) -> str:
        """Return the broker's address for a host.

        Args:
            host: Index of the host, below ``HOSTS_MAX``.
        """
        if not self._links:
            return self.address
        return f"127.0.0.1:{self._links[host].address[1]}"

    @property
    def client(self) -> dict[str, Any]:
        """Arguments of kafka-python's clients, for all processes but hosts."""
        return self._broker.options()

    # Faults; only if ``is_ours``

    @property
    def is_up(self) -> bool:
        """Whether its process accepts connections; blocks for a moment."""
        host, _, port = self.address.rpartition(":")
        with suppress(OSError), socket.create_connection((host, int(port)), _CONNECT_S):
            return True
        return False

    def kill(self) -> None:
        """Kill the broker with SIGKILL; ``start`` restarts it."""
        self._own.kill()

    def start(self) -> None:
        """Start the broker on the same data, unless it runs; returns before it listens."""
        if not self._own.is_running:
            self._own.start()

    def pause(self) -> None:
        """Freeze the broker: it accepts connections but does not answer."""
        self._own.pause()

    def resume(self) -> None:
        """Continue after ``pause``."""
        self._own.resume()

    def cut(self, host: int) -> None:
        """Drop all traffic between a host and the broker."""
        self._links[host].cut()

    def heal(self, host: int) -> None:
        """End a host's cut."""
        self._links[host].heal()

    @property
    def _own(self) -> Node:
        if self._node is None:
            raise BrokerError("the broker in WALLE_KAFKA takes no faults from a campaign")
        return self._node

    # Topics

    def make(self, topic: str, partitions: int) -> None:
        """Make a topic without retention, unless it exists; blocks.

        Retention must not delete records for their old timestamps.

        Args:
            topic: Name of the topic.
            partitions: Number of partitions.
        """
        options = self.client
        make_topic(options, topic, partitions=partitions, settings={"retention.ms": "-1"})

    def ends(self, topic: str, partitions: int) -> list[int] | None:
        """Return the end offset of each partition; blocks for seconds at most.

        Returns:
            The offsets; None if the broker does not answer.
        """
        from kafka.errors import KafkaError  # noqa: PLC0415 - an extra

        from kafka import KafkaConsumer, TopicPartition  # noqa: PLC0415 - an extra

        places = [TopicPartition(topic, number) for number in range(partitions)]
        with suppress(KafkaError, OSError, TimeoutError):
            consumer = KafkaConsumer(**self._impatient())
            try:
                found = consumer.end_offsets(places, timeout_ms=2_000)
            finally:
                consumer.close(autocommit=False, timeout_ms=500)
            return [found[each] for each in places]
        return None

    def committed(self, group: str, topic: str, partitions: int) -> list[int] | None:
        """Return a group's committed offsets; blocks for seconds at most.

        Returns:
            An offset per partition, 0 without a commit; None if the broker does not answer.
        """
        from kafka.errors import KafkaError  # noqa: PLC0415 - an extra

        from kafka import KafkaAdminClient  # noqa: PLC0415 - an extra

        with suppress(KafkaError, OSError, TimeoutError):
            admin = KafkaAdminClient(**self._impatient())
            try:
                found = admin.list_group_offsets({group: None})[group]
            finally:
                admin.close()
            at = {
                place.partition: each.offset
                for place, each in found.items()
                if place.topic == topic
            }
            return [max(at.get(number, 0), 0) for number in range(partitions)]
        return None

    def delete_topics(self, having: str) -> None:
        """Delete all topics whose names contain ``having``; blocks."""
        from kafka import KafkaAdminClient  # noqa: PLC0415 - an extra

        admin = KafkaAdminClient(**self.client)
        try:
            names = [name for name in admin.list_topics() if having in name]
            if names:
                admin.delete_topics(names, raise_errors=False)
        finally:
            admin.close()

    def _impatient(self) -> dict[str, Any]:
        return {
            **self.client,
            "bootstrap_timeout_ms": 1_000,
            "request_timeout_ms": 2_000,
            "reconnect_backoff_max_ms": 200,
        }

    def close(self) -> None:
        """End the links and a broker of our own; may be called twice."""
        self._close_links()
        self._broker.close()

    def _close_links(self) -> None:
        for link in self._links:
            link.close()
