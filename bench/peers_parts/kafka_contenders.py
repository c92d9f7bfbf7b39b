"""The contenders over Kafka, with notes about each."""

from importlib.metadata import version
from typing import Final

from peers_parts.contenders import Contender

_PYTHONS: Final = ("3.14", "3.13", "3.12", "3.11")
_BYTEWAX: Final = ("bytewax==0.21.1", _PYTHONS)
_BYTEWAX_ALSO: Final = ("confluent-kafka>=2.12", "fastavro", "requests")

KAFKA_CONTENDERS: Final = (
    Contender(
        "walle-confluent",
        "walle run, confluent-kafka",
        arguments=("confluent",),
        driver="librdkafka",
        note="state, journal, output and offset in one write batch. Features go from the outbox "
        "into the topic, acks=all, idempotent: at least once with a number per feature, so exactly "
        "once at a receiver that drops repetitions",
    ),
    Contender(
        "walle",
        "walle run, kafka-python",
        arguments=("kafka-python",),
        driver="kafka-python",
        note="the same with the default driver",
    ),
    Contender(
        "plain-confluent",
        "plain loop, confluent-kafka",
        "kafka_plain.py",
        arguments=("confluent",),
        driver="librdkafka",
        keeps_state=False,
        note="keeps nothing, commits nothing",
    ),
    Contender(
        "plain",
        "plain loop, kafka-python",
        "kafka_plain.py",
        arguments=("kafka-python",),
        driver="kafka-python",
        keeps_state=False,
        note="keeps nothing, commits nothing",
    ),
    Contender(
        "bytewax",
        "Bytewax",
        "kafka_bytewax.py",
        *_BYTEWAX,
        driver="librdkafka",
        also=_BYTEWAX_ALSO,
        keeps_state=False,
        note="stateful_batch without recovery: neither state nor offsets are kept",
    ),
    Contender(
        "bytewax-recovery",
        "Bytewax, recovery",
        "kafka_bytewax.py",
        *_BYTEWAX,
        ("recovery",),
        driver="librdkafka",
        also=_BYTEWAX_ALSO,
        note="at least once: state and offsets pickled into SQLite every 10 s, its default, and at "
        "the end",
    ),
    Contender(
        "quixstreams",
        "Quix Streams",
        "kafka_quix.py",
        "quixstreams==3.28.1",
        _PYTHONS,
        driver="librdkafka",
        note="at least once: RocksDB with a changelog topic, each device's open pages a value that "
        "each event reads and writes, checkpoint every 5 s, its default",
    ),
    Contender(
        "faust",
        "Faust",
        "kafka_faust.py",
        "faust-streaming==0.15.3",
        _PYTHONS,
        driver="aiokafka",
        also=(f"rocksdict=={version('rocksdict')}", "cramjam"),
        note="at least once: two tables on RocksDB with changelog topics, each device's open pages "
        "a value that each event reads and writes, commit every 2.8 s, its default",
    ),
)
"""In the order of the table."""
