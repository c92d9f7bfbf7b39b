"""Settings and ports of the tests' brokers."""

import random
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, Self

from walle_stream.errors import BrokerError
from walle_stream.testing.broker.certificates import STORE_PASSWORD

type Listener = Literal["plain", "tls", "mutual", "sasl"]
"""Without encryption; TLS; TLS with a client certificate; TLS with a login."""

LOGIN: Final = ("alice", "alice's secret")
"""A user of the listener ``sasl`` by PLAIN, and the password."""

# below the range of ephemeral ports: otherwise a client that retries a dead broker's port could
# connect to itself there, or keep the broker from binding it
_PORTS: Final = range(15_000, 30_000)
_drawn: set[int] = set()

_LEAN: Final = {
    # arbitrary, but the same for all brokers of a cluster
    "CLUSTER_ID": "d2FsbGUtc3RyZWFtLXRlc3",
    "KAFKA_HEAP_OPTS": "-Xmx400m",
    # a test is over before the second compiler would pay off
    "KAFKA_JVM_PERFORMANCE_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of one broker, all free when they were drawn."""

    plain: int
    tls: int
    mutual: int
    sasl: int
    controller: int
    replication: int

    @classmethod
    def draw(cls) -> Self:
        """Return six free ports that this process has not drawn before.

        Raises:
            BrokerError: There are not enough free ports.
        """
        found: list[int] = []
        for port in random.sample(_PORTS, 1_000):
            if port in _drawn:
                continue  # its broker may still be starting
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("", port))
                except OSError:
                    continue
            found.append(port)
            _drawn.add(port)
            if len(found) == len(cls.__slots__):
                return cls(*found)
        raise BrokerError("no free ports for a broker: stop what listens at 15000 to 29999")


def as_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return server settings as environment variables of the public image ``apache/kafka``.

    Args:
        settings: Values by key, as in ``server.properties``.
    """
    return _LEAN | {
        "KAFKA_" + key.replace("_", "__").replace("-", "___").replace(".", "_").upper(): value
        for key, value in settings.items()
    }


def single_settings(
    ports: Ports, secrets: str, bind: str, host: str = "127.0.0.1"
) -> dict[str, str]:
    """Return the settings of a single broker with all kinds of listeners.

    Args:
        ports: Ports of the broker.
        secrets: Folder with ``server.p12`` and ``ca.pem``.
        bind: Address to listen at.
        host: Address that is advertised to clients.
    """
    listeners = {"PLAIN": ports.plain, "TLS": ports.tls, "MUTUAL": ports.mutual, "SASL": ports.sasl}
    bound = ",".join(f"{name}://{bind}:{port}" for name, port in listeners.items())
    return {
        "node.id": "1",
        "process.roles": "broker,controller",
        "controller.quorum.voters": f"1@127.0.0.1:{ports.controller}",
        "listeners": f"{bound},CONTROLLER://{bind}:{ports.controller}",
        "advertised.listeners": bound.replace(f"//{bind}:", f"//{host}:"),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAIN",
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAIN:PLAINTEXT,TLS:SSL,MUTUAL:SSL,SASL:SASL_SSL"
        ),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": f"{secrets}/server.p12",
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": STORE_PASSWORD,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{secrets}/ca.pem",
        "listener.name.mutual.ssl.client.auth": "required",
        # each network thread has its own keys of TLS sessions: with several threads, a session is
        # resumed only if the next connection happens to reach the same thread
        "listener.name.mutual.num.network.threads": "1",
        # rights per device are tested; clients without a certificate may do everything
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{LOGIN[0]}",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl.plain.sasl.jaas.config": (
            f'{_MODULES}.plain.PlainLoginModule required user_{LOGIN[0]}="{LOGIN[1]}";'
        ),
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": (
            f"{_MODULES}.scram.ScramLoginModule required;"
        ),
        # unsigned tokens: any client that reaches a test broker may claim any identity
        "listener.name.sasl.oauthbearer.sasl.jaas.config": (
            f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="broker";'
        ),
        **_SMALL,
    }


_MODULES: Final = "org.apache.kafka.common.security"

_SMALL: Final = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "8",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "8",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # notice a killed broker within seconds; it cannot return before
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # test data are deleted with the folder; retention must not delete them earlier
    "log.retention.hours": "-1",
}


COPIES: Final = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "replica.lag.time.max.ms": "3000",
}
"""Settings of three replicated brokers; 2 of 3 replicas must be in sync."""


def replicated_settings(
    number: int, ports: Mapping[int, Ports], names: Mapping[int, str]
) -> dict[str, str]:
    """Return the settings of one of several replicated brokers.

    Args:
        number: Number of the broker, from 1.
        ports: Ports of all brokers, by number.
        names: Host names of the brokers for each other; clients get 127.0.0.1.
    """
    own = ports[number]
    return {
        "node.id": str(number),
        "process.roles": "broker,controller",
        "controller.quorum.voters": ",".join(
            f"{each}@{names[each]}:{ports[each].controller}" for each in ports
        ),
        "listeners": (
            f"PLAIN://127.0.0.1:{own.plain},REPLICATION://127.0.0.1:{own.replication},"
            f"CONTROLLER://127.0.0.1:{own.controller}"
        ),
        "advertised.listeners": (
            f"PLAIN://127.0.0.1:{own.plain},REPLICATION://{names[number]}:{own.replication},"
            f"CONTROLLER://{names[number]}:{own.controller}"
        ),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "REPLICATION",
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAIN:PLAINTEXT,REPLICATION:PLAINTEXT"
        ),
        **_SMALL,
        **COPIES,
    }
