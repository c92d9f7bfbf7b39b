"""The cloud side over TLS: with the rights that it needs, and with certificates that are wrong."""

import sys
from pathlib import Path

import pytest
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourceType,
)

sys.path.insert(0, str(Path(__file__).parent))
from cloud_truth import Truth
from cloud_worker import DEADLINE_S, Worker

pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka,
    pytest.mark.filterwarnings("ignore:unclosed <:ResourceWarning"),
]


def over(broker, listener, ca, files=None):
    """Return the overrides with which a worker reaches a listener."""
    keys = {"brokers": broker.address(listener), "tls.ca": ca}
    if files is not None:
        keys |= {"tls.cert": files.cert, "tls.key": files.key}
    return [f"spec.tunnel.{key}={value}" for key, value in keys.items()]


def allow(cluster, client, topic):
    """As deploy/kafka/README.md says of ``walle cloud``."""
    group = f"walle-cloud-t-{cluster.run_id}"
    prefixed = ACLResourcePatternType.PREFIXED
    rights = [
        (ACLOperation.READ, ResourcePattern(ResourceType.TOPIC, topic)),
        (ACLOperation.DESCRIBE, ResourcePattern(ResourceType.TOPIC, topic)),
        (ACLOperation.READ, ResourcePattern(ResourceType.GROUP, group)),
        (ACLOperation.ALL, ResourcePattern(ResourceType.TOPIC, f"{group}-", prefixed)),
    ]
    with cluster.admin() as admin:
        admin.create_acls(
            [
                ACL(f"User:CN={client}", "*", each, ACLPermissionType.ALLOW, at)
                for each, at in rights
            ]
        )


def test_a_worker_with_its_documented_rights_merges_over_mutual_tls(broker, cluster, tmp_path):
    topic = cluster.topic("features")
    client = f"cloud-{cluster.run_id}"
    allow(cluster, client, topic)
    files = broker.files(client)
    truth = Truth(cluster, topic)
    for disk in ("one", "two"):  # the second recovers its table over TLS, too
        overrides = over(broker, "mutual", broker.certificates.ca, files)
        with Worker(tmp_path, cluster, topic, overrides=overrides, name=disk) as worker:
            worker.wait_ready()
            truth.send("d1", 20)
            truth.wait(worker)
            assert worker.stop() == 0
            assert len(worker.output().splitlines()) == 1


@pytest.mark.parametrize(
    ("listener", "files", "words"),
    [
        ("tls", "other-ca", "its certificate is refused: self-signed certificate"),
        ("mutual", "stranger", "it refuses us: "),
        ("mutual", "expired", "it refuses us: "),
        ("mutual", "none", "it refuses us: "),
        ("plain", "none", "does its listener use TLS?"),
    ],
)
def test_what_is_wrong_with_the_certificates_is_one_line(
    broker, cluster, tmp_path, listener, files, words
):
    certificates = broker.certificates
    ca, own = certificates.ca, None
    if files == "other-ca":
        ca = certificates.stranger("elsewhere").ca
    elif files != "none":
        own = getattr(certificates, files)(f"cloud-{files}")
    overrides = over(broker, listener, ca, own)
    with Worker(tmp_path, cluster, "any", overrides=overrides) as worker:
        assert worker.process.wait(DEADLINE_S) == 12
        line = worker.output().splitlines()[-1]
    assert line.startswith("walle: no broker answers (")
    assert words in line
