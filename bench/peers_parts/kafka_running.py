"""One run of one contender over a topic: what it cost, and what it wrote."""

import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec

from peers_parts.contenders import Contender
from peers_parts.environments import Environment
from peers_parts.kafka_job import PARTITIONS, KafkaJob
from peers_parts.kafka_topics import BenchTopics
from peers_parts.running import ROOT, Cost, Made, canonical, canonical_line, digest_of, measured

ORDER_MS: Final = 2_000
"""How far behind events may come, as ``configs/shop.yaml`` has it."""


def command_of(contender: Contender, environment: Environment, job: KafkaJob) -> list[str]:
    """Return the command that runs a contender."""
    python = str(environment.python)
    if contender.script:
        script = Path(__file__).parent / contender.script
        return [python, str(script), msgspec.json.encode(job).decode(), *contender.arguments]
    driver = contender.arguments[0]
    kafka = f"connector: kafka, brokers: '{job.broker}', driver: {driver}"
    ends = "true" if job.events else "false"
    settings = (
        f"spec.source={{{kafka}, topic: {job.source}, stopAtEnd: {ends}}}",
        # uncompressed, as the others' are
        f"spec.tunnel={{{kafka}, topic: {job.out}, codec: none}}",
        f"spec.runtime.partitions={PARTITIONS}",
        f"spec.sequence.outOfOrder={job.order_ms}ms",
    )
    command = [python, "-m", "walle_stream.cli", "run", str(ROOT / "configs/shop.yaml"), "--json"]
    command += ["--allow-empty", "--data-dir", f"{job.folder}/data"]
    for each in settings:
        command += ["--set", each]
    return command


def run_over_kafka(
    contender: Contender, environment: Environment, topics: BenchTopics, source: str, events: int
) -> tuple[Cost, Made]:
    """Run it over a topic until the end; blocks."""
    folder = tempfile.mkdtemp(prefix="walle-bench-")
    run = Path(folder).name
    out = topics.make(run)
    job = KafkaJob(topics.broker, source, out, out, folder, events, ORDER_MS)
    try:
        cost = measured(command_of(contender, environment, job))
        return cost, digest_of(map(feature_of, topics.read(out)))
    finally:
        topics.delete(run)
        shutil.rmtree(folder, ignore_errors=True)


def feature_of(record: Any) -> bytes:
    """Return the feature of a record of an output topic as ``canonical`` does.

    Args:
        record: kafka-python's; ours has the encoding in a header.
    """
    headers = dict(record.headers)
    if "enc" in headers:
        return canonical(msgspec.json.decode(record.value), headers["enc"])
    return canonical_line(record.value)
