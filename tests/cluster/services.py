"""Services of a cluster's pipelines, Kafka with TLS and an object store; both can be broken."""

import os
from pathlib import Path
from typing import Final
from unittest.mock import patch

from tests.cluster.engine import Network, docker, node_image
from tests.cluster.faults import wrong_clock
from tests.s3 import BUCKET, ENVIRON
from walle_stream.testing.broker import Certificates
from walle_stream.testing.broker.container import SECRETS, find_image
from walle_stream.testing.broker.settings import COPIES, Ports, as_environment, single_settings

S3: Final = {
    **ENVIRON,
    "AWS_ENDPOINT_URL": "http://s3:7070",
    "AWS_ALLOW_HTTP": "true",
    "AWS_REGION": "us-east-1",
}
"""Variables by which clients reach the object store."""
SNAPSHOTS: Final = f"s3://{BUCKET}/snapshots"

_OLD_S: Final = 12 * 3600
"""Age of certificates, so that they hold on nodes whose clocks are behind."""
_PORTS: Final = Ports(9092, 9093, 9094, 9095, 9096, 9097)
_KAFKA_HOST: Final = 200
_S3_HOST: Final = 210


class Service:
    """A container that can be killed, frozen and brought back with its data."""

    def __init__(self, network: Network, name: str) -> None:
        """Take over a container that was started."""
        self._container = network.container(name)

    def kill(self) -> None:
        """``kill -9``."""
        docker("kill", self._container)

    def start(self) -> None:
        """Start it again; returns before it listens."""
        docker("start", self._container)

    def pause(self) -> None:
        """Freeze it: it accepts connections, and answers nothing."""
        docker("pause", self._container)

    def resume(self) -> None:
        """Let it go on."""
        docker("unpause", self._container)


def start_kafka(network: Network, folder: Path, count: int = 1) -> list[Service]:
    """Start brokers, and put their CA into ``folder/ca.pem``; returns before they listen.

    Args:
        network: Where they are what ``brokers`` says.
        folder: Of files that clients are given.
        count: 1, or 3 that hold copies of each other's partitions.

    Raises:
        BrokerError: There is no ``openssl``.
        BrokerMissingError: There is no image of Kafka.
    """
    names = [f"kafka-{number}" for number in range(1, count + 1)]
    with patch.dict(os.environ, wrong_clock(folder, -_OLD_S)):
        certificates = Certificates(folder / "certificates", *names)
    (folder / "ca.pem").write_bytes(certificates.ca.read_bytes())
    options = [f"--volume={certificates.server_folder}:{SECRETS}:ro"]
    options += [
        f"--add-host={name}:{network.address(_KAFKA_HOST + number)}"
        for number, name in enumerate(names, 1)
    ]
    image = find_image()
    voters = [f"{number}@{name}:{_PORTS.controller}" for number, name in enumerate(names, 1)]
    for number, name in enumerate(names, 1):
        settings = single_settings(_PORTS, SECRETS, "0.0.0.0", name)  # noqa: S104 - in a container
        settings |= {"node.id": str(number), "controller.quorum.voters": ",".join(voters)}
        settings |= COPIES if count > 1 else {}
        environ = as_environment(settings)
        network.start(name, _KAFKA_HOST + number, image, environ=environ, options=options)
    return [Service(network, name) for name in names]


def brokers(count: int = 1) -> list[str]:
    """Return the addresses of the listeners with TLS, for every container of the network."""
    return [f"kafka-{number}:{_PORTS.tls}" for number in range(1, count + 1)]


def start_s3(network: Network, program: str) -> Service:
    """Start an object store with an empty bucket; returns before it listens.

    Args:
        network: Where it is ``s3``.
        program: versitygw on this machine.
    """
    environ = {
        "ROOT_ACCESS_KEY": ENVIRON["AWS_ACCESS_KEY_ID"],
        "ROOT_SECRET_KEY": ENVIRON["AWS_SECRET_ACCESS_KEY"],
    }
    command = f"mkdir -p /data/{BUCKET} && exec versitygw --port :7070 posix /data"
    mount = f"--volume={program}:/usr/local/bin/versitygw:ro"
    network.start(
        *("s3", _S3_HOST, node_image(), ["sh", "-ec", command]), environ=environ, options=[mount]
    )
    return Service(network, "s3")
