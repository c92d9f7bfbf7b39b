"""A real Apache Kafka for tests: one broker with TLS, or three replicated ones, and their faults.

``open_broker`` uses the broker in ``WALLE_KAFKA``, else a container if Docker answers, else a
process of this machine's JDK; see docs/kafka.md.
"""

from walle_stream.testing.broker.broker import Broker, open_broker
from walle_stream.testing.broker.certificates import Certificates, ClientFiles
from walle_stream.testing.broker.cluster import Cluster, open_cluster
from walle_stream.testing.broker.ready import make_topic, round_trip, wait_until
from walle_stream.testing.broker.settings import Listener

__all__ = [
    "Broker",
    "Certificates",
    "ClientFiles",
    "Cluster",
    "Listener",
    "make_topic",
    "open_broker",
    "open_cluster",
    "round_trip",
    "wait_until",
]
