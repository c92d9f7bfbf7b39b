"""What a cluster's pipelines need beside it: Kafka with TLS, an object store; both can be broken."""

from pathlib import Path
from typing import Final

from tests.cluster.engine import Network, docker, node_image
from tests.s3 import BUCKET, ENVIRON
from walle_stream.testing.broker import Certificates
from walle_stream.testing.broker.container import SECRETS, find_image
from walle_stream.testing.broker.settings import Ports, as_environment, single_settings

BROKER: Final = "kafka:9093"
"""Address of the listener with TLS, for every container of the network."""
S3: Final = {
    **ENVIRON,
    "AWS_ENDPOINT_URL": "http://s3:7070",
    "AWS_ALLOW_HTTP": "true",
    "AWS_REGION": "us-east-1",
}
"""Variables by which clients reach the object store."""
SNAPSHOTS: Final = f"s3://{BUCKET}/snapshots"

_PORTS: Final = Ports(9092, 9093, 9094, 9095, 9096, 9097)
_KAFKA_HOST: Final = 200
_S3_HOST: Final = 201


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


def start_kafka(network: Network, folder: Path) -> Service:
    """Start a broker, and put its CA into ``folder/ca.pem``; returns before it listens.

    Args:
        network: Where it is ``kafka``.
        folder: Of files that clients are given.

    Raises:
        BrokerError: There is no ``openssl``.
        BrokerMissingError: There is no image of Kafka.
    """
    certificates = Certificates(folder / "certificates", "kafka")
    (folder / "ca.pem").write_bytes(certificates.ca.read_bytes())
    settings = single_settings(_PORTS, SECRETS, "0.0.0.0", "kafka")  # noqa: S104 - in a container
    secrets = f"--volume={certificates.server_folder}:{SECRETS}:ro"
    environ = as_environment(settings)
    network.start("kafka", _KAFKA_HOST, find_image(), environ=environ, options=[secrets])
    return Service(network, "kafka")


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
