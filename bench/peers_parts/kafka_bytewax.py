"""Bytewax over Kafka: its source and sink, a stateful operator, optionally with recovery.

Without recovery nothing is kept, offsets neither. With it they are snapshotted with the
state at the end of each epoch (of 10 s, its default, and at the end): at least once, as its
sink has no transactions. The sink flushes behind each batch, so nothing lingers.
"""

import sys
from pathlib import Path

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import run_main

from peers_parts.bytewax_flow import Device
from peers_parts.kafka_job import PARTITIONS, KafkaJob, told
from peers_parts.shop_job import Watermarks, decode_event


def run(job: KafkaJob, *, has_recovery: bool) -> None:
    """Make the features of a topic of events.

    Args:
        job: What to do.
        has_recovery: Whether state and offsets are kept.
    """
    watermarks = Watermarks(PARTITIONS)
    flow = Dataflow("shop")
    source = KafkaSource([job.broker], [job.source], tail=not job.events)
    messages = op.input("messages", flow, source)
    events = op.map("decode", messages, lambda message: decode_event(message.value))
    stamped = op.map("watermark", events, lambda event: (event, watermarks.of(event)))
    keyed = op.key_on("device", stamped, lambda each: each[0].device_id)
    features = op.stateful_batch("pages", keyed, Device)
    records = op.map(
        "record", features, lambda each: KafkaSinkMessage(each[0].encode(), each[1].encode())
    )
    op.output("out", records, KafkaSink([job.broker], job.out))
    if not has_recovery:
        run_main(flow)
        return
    recovery = Path(job.folder) / "recovery"
    recovery.mkdir()
    init_db_dir(recovery, 1)
    run_main(flow, recovery_config=RecoveryConfig(str(recovery)))


if __name__ == "__main__":
    run(told(), has_recovery="recovery" in sys.argv[2:])
