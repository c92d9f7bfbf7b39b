"""Three brokers with replicated partitions and a link between any two brokers."""

import sys
from pathlib import Path
from typing import Any, Final, Self

from walle_stream.errors import BrokerError, BrokerMissingError
from walle_stream.testing.broker.node import Node, with_log
from walle_stream.testing.broker.providers import Provider, find_provider
from walle_stream.testing.broker.ready import make_topic, round_trip, wait_until
from walle_stream.testing.broker.settings import Ports, as_environment, replicated_settings
from walle_stream.testing.link import Link

NUMBERS: Final = (1, 2, 3)
"""Numbers of the brokers."""

_START_S: Final = 120.0


class Cluster:
    """Three brokers: topics have 3 replicas, of which 2 must be in sync. For one thread.

    A broker reaches each other broker through a link of its own (``walle_stream.testing.link``),
    which listens at the address of the other broker's name. So ``cut`` needs no privileges, and
    clients still reach a broker that is cut off from the others.
    """

    def __init__(self, folder: Path, provider: Provider) -> None:
        """Start the brokers and wait until a record is replicated; blocks for some 10 s.

        Raises:
            BrokerError: The brokers did not start.
        """
        self.kind = provider.name
        self._ports = {number: Ports.draw() for number in NUMBERS}
        self._links: dict[tuple[int, int], list[Link]] = {}
        self._paused: set[int] = set()
        self._nodes: dict[int, Node] = {}
        try:
            for one in NUMBERS:
                for other in NUMBERS:
                    if other != one:
                        self._links[one, other] = self._make_links(one, other)
            for number in NUMBERS:
                self._nodes[number] = self._make_node(number, folder, provider)
            for node in self._nodes.values():
                node.start()
            self.await_ready(_START_S)
        except BaseException:
            self.close()
            raise

    def _make_links(self, one: int, other: int) -> list[Link]:
        ports = self._ports[other]
        return [
            Link(("127.0.0.1", port), (_door(one, other), port))
            for port in (ports.controller, ports.replication)
        ]

    def _make_node(self, number: int, folder: Path, provider: Provider) -> Node:
        files = folder / f"files-{number}"
        files.mkdir(parents=True)
        hosts = files / "hosts"
        lines = [f"127.0.0.1 localhost {_name(number)}"]
        lines += [f"{_door(number, other)} {_name(other)}" for other in NUMBERS if other != number]
        hosts.write_text("\n".join(lines) + "\n")
        files.chmod(0o755)
        hosts.chmod(0o644)
        names = {each: _name(each) for each in NUMBERS}
        environment = as_environment(replicated_settings(number, self._ports, names))
        environment["KAFKA_HEAP_OPTS"] = "-Xmx320m"
        environment["KAFKA_OPTS"] = f"-Djdk.net.hosts.file={provider.secrets(files)}/hosts"
        return provider.node(folder / f"broker-{number}", files, environment)

    @property
    def addresses(self) -> list[str]:
        """``host:port`` of each broker, without encryption."""
        return [f"127.0.0.1:{self._ports[number].plain}" for number in NUMBERS]

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments with which a client of kafka-python connects."""
        return {"bootstrap_servers": self.addresses}

    # Topics

    def make_topic(self, name: str) -> None:
        """Make a topic of one partition with 3 replicas and wait until all are in sync.

        Raises:
            BrokerError: The replicas are not in sync in time.
        """
        make_topic(self.options(), name, copies=len(NUMBERS))
        self.await_copies(name)

    def leader_of(self, topic: str) -> int:
        """Return the number of the broker that leads a topic's only partition.

        Returns:
            The answer of the first broker that answers; 0 or less if the leader is unknown.
        """
        return int(self._partition(topic).get("leader_id", 0))

    def await_leader(self, topic: str, *, other_than: int) -> int:
        """Wait until the other brokers have elected a new leader, and return its number.

        Args:
            topic: Name of the topic.
            other_than: The leader that was killed or cut off.

        Raises:
            BrokerError: No leader was elected in time.
        """
        found = 0

        def is_chosen() -> bool:
            nonlocal found
            found = self.leader_of(topic)
            return found > 0 and found != other_than

        wait_until(is_chosen, f"a leader of {topic} other than {other_than}")
        return found

    def await_copies(self, topic: str) -> None:
        """Wait until all replicas of a topic's partition are in sync.

        Raises:
            BrokerError: The replicas are not in sync in time.
        """
        wait_until(
            lambda: len(self._partition(topic).get("isr_nodes", ())) == len(NUMBERS),
            f"all copies of {topic} in sync",
        )

    def _partition(self, topic: str) -> dict[str, Any]:
        from kafka.errors import KafkaError  # noqa: PLC0415 - an extra

        from kafka import KafkaAdminClient  # noqa: PLC0415 - an extra

        try:
            admin = KafkaAdminClient(
                **self.options(),
                bootstrap_timeout_ms=1_000,
                request_timeout_ms=2_000,
                reconnect_backoff_max_ms=500,
            )
        except KafkaError:
            return {}
        try:
            described = admin.describe_topics([topic])
        except KafkaError:
            return {}
        finally:
            admin.close()
        partitions = described[0].get("partitions", []) if described else []
        return partitions[0] if partitions else {}

    def describe(self) -> str:
        """Return a line for each broker: whether it runs, and the end of its log."""
        return "\n".join(
            with_log(f"broker {number} {'runs' if node.is_running else 'has ended'}", node)
            for number, node in self._nodes.items()
        )

    # Faults

    def kill(self, number: int) -> None:
        """Kill one broker with SIGKILL.

        Args:
            number: Number of the broker, from 1.
        """
        self._nodes[number].kill()

    def start(self, number: int) -> None:
        """Start a broker again on the same data; returns before the broker listens."""
        self._nodes[number].start()

    def pause(self, number: int) -> None:
        """Freeze a broker."""
        self._nodes[number].pause()
        self._paused.add(number)

    def resume(self, number: int) -> None:
        """Continue a broker after ``pause``."""
        self._nodes[number].resume()
        self._paused.discard(number)

    def cut(self, number: int) -> None:
        """Cut a broker off from the other brokers, both ways; clients still reach it."""
        for ends, links in self._links.items():
            if number in ends:
                for link in links:
                    link.cut()

    def mend(self) -> None:
        """Heal all links."""
        for links in self._links.values():
            for link in links:
                link.heal()

    def heal(self) -> None:
        """Undo all faults of a test and wait until records are replicated; blocks.

        Raises:
            BrokerError: The brokers are not ready in time.
        """
        self.mend()
        for number in sorted(self._paused):
            self.resume(number)
        for number, node in self._nodes.items():
            if not node.is_running:
                self.start(number)
        self.await_ready(_START_S)

    def await_ready(self, timeout_s: float) -> None:
        """Wait until a record is consumed and fully replicated; blocks.

        Args:
            timeout_s: Longest wait.

        Raises:
            BrokerError: That did not happen in time; the message has the end of a log.
        """
        try:
            round_trip(self.options(), copies=len(NUMBERS), timeout_s=timeout_s)
            self.await_copies("walle-ready")
        except BrokerError as error:
            ended = [node for node in self._nodes.values() if not node.is_running]
            node = (ended or list(self._nodes.values()))[0]
            raise BrokerError(with_log(str(error), node)) from error

    def close(self) -> None:
        """End brokers and links; may be called twice."""
        for node in self._nodes.values():
            node.close()
        for links in self._links.values():
            for link in links:
                link.close()

    def __enter__(self) -> Self:
        """Return the cluster."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the cluster."""
        self.close()


def open_cluster(folder: Path) -> Cluster:
    """Return three brokers that are ready; blocks for some 10 s.

    The tests always own these brokers; ``WALLE_KAFKA`` is ignored.

    Raises:
        BrokerError: The brokers did not start.
        BrokerMissingError: Neither Docker nor a JDK is available, or this is not Linux. Only Linux
            has the loopback addresses that the links need.
    """
    if sys.platform != "linux":
        raise BrokerMissingError("three brokers need Linux, which has many loopback addresses")
    return Cluster(folder, find_provider())


def _name(number: int) -> str:
    return f"broker-{number}"


def _door(one: int, other: int) -> str:
    """Return the loopback address at which one broker reaches another."""
    return f"127.7.{one}.{other}"
