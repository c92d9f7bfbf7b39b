"""The broker of a campaign: killed, paused and cut off from single hosts.

Brokers tell clients where to go on, so a link between a host and the broker works only
where the broker names it. Ours has a listener per host whose advertised port is that
host's link.
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
"""Hosts that can be told apart."""

_SESSION_MS: Final = 3_000
_GIVEN_SESSION_MS: Final = 6_000  # the least that brokers allow unless told
_CONNECT_S: Final = 0.5


class Place:
    """Where a campaign's topics are. One thread."""

    def __init__(self, folder: Path, marks: Mapping[str, str]) -> None:
        """Start a broker on the folder's data, or take the one in ``WALLE_KAFKA``; blocks.

        Args:
            folder: Of the broker, kept between the parts of a campaign that was resumed.
            marks: Environment variables of its process.

        Raises:
            BrokerError: It did not come up.
            BrokerMissingError: There is none here.
        """
        self.is_ours = not environ.get("WALLE_KAFKA")
        """Whether it may be broken."""
        self._links: list[Link] = []
        self._node: Node | None = None
        self._broker = self._start(folder, marks) if self.is_ours else open_broker(folder)
        self.session_ms = _SESSION_MS if self.is_ours else _GIVEN_SESSION_MS
        """How long a host may be silent."""

    def _start(self, folder: Path, marks: Mapping[str, str]) -> Broker:
        provider = find_provider()
        # what a campaign that was killed left
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
        """``host:port`` without a link, for all but hosts."""
        return self._broker.address()

    def address_of(self, host: int) -> str:
        """Return where a host finds the broker.

        Args:
            host: Its index, below ``HOSTS_MAX``.
        """
        if not self._links:
            return self.address
        return f"127.0.0.1:{self._links[host].address[1]}"

    @property
    def client(self) -> dict[str, Any]:
        """What kafka-python's clients are made with, but for hosts."""
        return self._broker.options()

    # Faults; only where ``is_ours``

    @property
    def is_up(self) -> bool:
        """Whether its process accepts connections; blocks for a moment."""
        host, _, port = self.address.rpartition(":")
        with suppress(OSError), socket.create_connection((host, int(port)), _CONNECT_S):
            return True
        return False

    def kill(self) -> None:
        """``kill -9``; ``start`` brings it back."""
        self._own.kill()

    def start(self) -> None:
        """Start it again on the same data, unless it runs; returns before it listens."""
        if not self._own.is_running:
            self._own.start()

    def pause(self) -> None:
        """Stop it in the middle: it accepts connections, and answers nothing."""
        self._own.pause()

    def resume(self) -> None:
        """Let it go on."""
        self._own.resume()

    def cut(self, host: int) -> None:
        """Lose every byte between a host and the broker."""
        self._links[host].cut()

    def heal(self, host: int) -> None:
        """End a host's cut."""
        self._links[host].heal()

    @property
    def _own(self) -> Node:
        if self._node is None:
            raise BrokerError("the broker in WALLE_KAFKA is not the campaign's to break")
        return self._node

    # Topics

    def make(self, topic: str, partitions: int) -> None:
        """Make a topic that keeps everything, whatever times its records have; blocks.

        Args:
            topic: Its name; one that is there stays.
            partitions: How many.
        """
        options = self.client
        make_topic(options, topic, partitions=partitions, settings={"retention.ms": "-1"})

    def ends(self, topic: str, partitions: int) -> list[int] | None:
        """Return how many records each partition has; blocks for seconds at most.

        Returns:
            None when the broker gives no answer.
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
        """Return how far a group has committed; blocks for seconds at most.

        Returns:
            0 where nothing was; None when the broker gives no answer.
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
        """Delete topics; blocks."""
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
        """End links and a broker of our own; may be called twice."""
        self._close_links()
        self._broker.close()

    def _close_links(self) -> None:
        for link in self._links:
            link.close()
