"""How the ends reach the broker: directly, or over a link, and topics of their own."""

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from kafka.net.inet import KafkaNetSocket

from kafka import KafkaAdminClient
from walle_connectors.kafka.admin import admin_client
from walle_connectors.kafka.cluster import NeededTopic
from walle_connectors.kafka.topics import create_topics
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel

LINKS: Final[dict[str, dict[str, str]]] = {
    "loopback": {},
    "50 ms": {"delay": "25ms"},
    "phone": {"delay": "25ms", "jitter": "10ms", "loss": "0.01"},
}
"""Options of the link between a device and the broker; none without a link."""


class LinkSocket(KafkaNetSocket):
    """Connects to a link in place of the broker, whatever address the broker tells.

    kafka-python's seam for proxies; one that is not spoken to is no proxy but a detour.
    """

    SCHEMES = ("walle-link",)

    def __init__(self, proxy_url: str) -> None:
        """Keep the address.

        Args:
            proxy_url: ``walle-link://HOST:PORT``.
        """
        parts = urlsplit(proxy_url)
        self._address = (parts.hostname, parts.port)

    def dns_lookup(self, host: str, port: int, raise_error: bool = False) -> Any:
        """Return the link's address for every name."""
        del host, port
        return super().dns_lookup(*self._address, raise_error)


class LinkedModel(KafkaTunnelModel):
    """Keys of a tunnel whose clients connect over a link: ``brokers`` is its address."""

    def client_options(self) -> dict[str, Any]:
        """Return what clients take, with the detour."""
        return super().client_options() | {"proxy_url": f"walle-link://{self.brokers[0]}"}


class Reach(NamedTuple):
    """Arguments of a measurement in a process of its own."""

    address: str
    tls: dict[str, str]
    """``ca``, ``cert``, ``key``; empty for plain."""
    link: str
    codec: str = "zstd"
    linger_ms: int = 0

    def to_text(self) -> str:
        """Return it as an argument of a command."""
        return json.dumps(self._asdict())


class Network(NamedTuple):
    """Both sides of a tunnel with topics that nobody else has."""

    device: KafkaTunnelModel
    """Over the link."""
    cloud: KafkaTunnelModel
    """Beside the broker."""


@contextmanager
def open_network(reach: Reach, partitions: int = 1) -> Iterator[Network]:
    """Make topics, and a link where one is asked for; both are gone behind it.

    Yields:
        The models of both sides.
    """
    name = f"bench-tunnel-{secrets.token_hex(6)}"
    keys = {
        "brokers": reach.address,
        "tls": reach.tls or None,
        "topic": name,
        "downTopic": f"{name}-down",
        "codec": reach.codec,
        "lingerMs": reach.linger_ms,
    }
    cloud = KafkaTunnelModel.model_validate(keys)
    needed = [
        NeededTopic(each, "the bench's", partitions, cloud.max_bytes)
        for each in (cloud.topic, str(cloud.down_topic))
    ]
    create_topics(cloud, needed)
    try:
        if LINKS[reach.link]:
            with open_link(reach.address, LINKS[reach.link]) as address:
                yield Network(LinkedModel.model_validate(keys | {"brokers": address}), cloud)
        else:
            yield Network(cloud, cloud)
    finally:
        with admin_client(cloud) as admin:
            admin.delete_topics([each.name for each in needed], raise_errors=False)


def allow_everything(options: dict[str, Any], client: str) -> None:
    """Give a client with a certificate all rights to topics and groups.

    Args:
        options: Options of a client with the right to do so.
        client: Its common name.
    """
    admin = KafkaAdminClient(**options)
    try:
        admin.create_acls(
            [
                ACL(f"User:CN={client}", "*", ACLOperation.ALL, ACLPermissionType.ALLOW, pattern)
                for pattern in (
                    ResourcePattern(ResourceType.TOPIC, "*"),
                    ResourcePattern(ResourceType.GROUP, "*"),
                    # making topics, and asking how large they are
                    ResourcePattern(ResourceType.CLUSTER, "kafka-cluster"),
                )
            ]
        )
    finally:
        admin.close()


def topic_bytes(model: KafkaTunnelModel) -> int:
    """Return how many bytes the topic of the way up has in the broker, batches as they lie."""
    with admin_client(model) as admin:
        found = admin.describe_log_dirs([model.topic])
    return sum(
        each["partition_size"]
        for broker in found
        for folder in broker["log_dirs"]
        for topic in folder["topics"]
        for each in topic["partitions"]
    )


@contextmanager
def open_link(target: str, options: dict[str, str]) -> Iterator[str]:
    """Open a link in a process of its own, for as long as it is needed.

    Args:
        target: Where it leads to, ``host:port``.
        options: Of ``walle_stream.testing.link``, without their dashes.

    Yields:
        Where it listens.
    """
    # a process of its own: in ours it would wait for the interpreter's lock
    command = [sys.executable, "-m", "walle_stream.testing.link", "--to", target]
    for name, value in options.items():
        command += [f"--{name}", value]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None  # noqa: S101 - they are pipes
        assert process.stdout is not None  # noqa: S101 - same
        said = process.stdout.readline().split()
        if not said:
            raise RuntimeError(f"no link to {target} could be opened: see above")
        try:
            yield said[1]
        finally:
            process.stdin.close()
