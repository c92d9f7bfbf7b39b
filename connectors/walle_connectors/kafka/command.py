"""The commands ``walle topics`` and ``walle doctor``, which compare a cluster with a pipeline."""

import argparse
import json
import sys
from itertools import chain
from pathlib import Path
from typing import Any, Final

from walle_stream.errors import SpecFileError

_REPLICAS_MAX: Final = 32_767
"""Largest number that the protocol can carry."""

_DIGITS: Final = 5


def add(commands: Any) -> None:
    """Add the commands to the parser; an entry point of ``walle_stream.commands``."""
    topics = commands.add_parser("topics", help="show, create or grow a pipeline's Kafka topics")
    topics.add_argument(
        "verb",
        nargs="?",
        choices=("grow",),
        help="give the topics, state and tables of a stopped pipeline more partitions",
    )
    for option, metavar, text in (
        (
            "--data-dir",
            "D",
            "data directory of the hosts (default: walle-data/NAME); not with spec.state.snapshots",
        ),
        ("--cloud-data-dir", "D", "data directory of the only worker of walle cloud"),
        ("--snapshots", "URL", "snapshots of walle cloud's workers, instead of --cloud-data-dir"),
    ):
        kind = Path if metavar == "D" else str
        topics.add_argument(option, type=kind, metavar=metavar, help=f"with grow: {text}")
    topics.add_argument("--to", type=_count, metavar="N", help="with grow: new number")
    topics.add_argument("--create", action="store_true", help="create missing topics")
    topics.add_argument(
        "--replicas",
        type=_count,
        default=-1,
        metavar="N",
        help="with --create: replicas of each partition (default: the cluster's)",
    )
    topics.set_defaults(run=run_topics)
    doctor = commands.add_parser(
        "doctor",
        help="check brokers, TLS, clocks, topics and the object store of a pipeline over Kafka",
    )
    doctor.set_defaults(run=run_doctor)
    for parser in (topics, doctor):
        parser.add_argument("file", type=Path, metavar="FILE", help="pipeline YAML")
        parser.add_argument(
            "--set", action="append", default=[], metavar="KEY=VALUE", help="override the YAML"
        )
        parser.add_argument("--json", action="store_true", help="a JSON object per line")


def run_topics(options: argparse.Namespace) -> int:
    """Print each topic as needed and as found, and create missing topics on request.

    Returns 0 when all topics are as needed, else the exit code of ``TopicError``.

    Raises:
        SpecFileError: The definition is wrong.
        BrokerUnreachableError: No broker answers.
        TopicError: The cluster refuses.
    """
    if options.verb:
        return _grow(options)
    from walle_connectors.kafka.pipeline import kafka_parts, load_kafka  # noqa: PLC0415 - an extra
    from walle_connectors.kafka.topics import (  # noqa: PLC0415 - an extra
        create_topics,
        find_topics,
        topic_problem,
    )
    from walle_stream.errors import TopicError  # noqa: PLC0415 - beside them

    code = 0
    for part in kafka_parts(load_kafka(options.file, options.set)):
        found = find_topics(part.connection, part.topics)
        # a hidden topic may still be created: that needs another right
        missing = [
            each for each in part.topics if (topic := found[each.name]) is None or topic.is_hidden
        ]
        if missing and options.create:
            create_topics(part.connection, missing, options.replicas)
            found |= find_topics(part.connection, missing)
        for each in part.topics:
            topic, problem = found[each.name], topic_problem(each, found[each.name])
            is_new = options.create and each in missing
            seen = None if topic is None or topic.is_hidden else topic
            code = TopicError.exit_code if problem else code
            have = f"{topic.partitions} partitions, {topic.replicas} replicas" if topic else ""
            line = problem or f"topic {each.name!r} ({each.key}): {have}"
            _say(
                options,
                f"{line}, created now" if is_new and not problem else line,
                {
                    "topic": each.name,
                    "key": each.key,
                    "partitions": seen.partitions if seen else None,
                    "needed_partitions": each.partitions,
                    "replicas": seen.replicas if seen else None,
                    "made": is_new,
                    "problem": problem,
                },
            )
    return code


def _grow(options: argparse.Namespace) -> int:
    from walle_connectors.kafka.growing import Growth  # noqa: PLC0415 - an extra
    from walle_connectors.kafka.pipeline import load_kafka  # noqa: PLC0415 - an extra

    if options.to is None:
        raise SpecFileError("walle topics grow needs --to N, the new number of partitions")
    growth = Growth(load_kafka(options.file, options.set), options.to)
    growth.run(
        options.growing,
        options.data_dir,
        options.cloud_data_dir,
        options.snapshots,
        lambda line: _say(options, line, {"done": line}),
    )
    line = f"set spec.runtime.partitions={options.to} and start again"
    _say(options, line, {"next": line})
    return 0


def run_doctor(options: argparse.Namespace) -> int:
    """Run the checks and print a line for each; return 0, or the exit code of the first failure.

    Raises:
        SpecFileError: The definition is wrong.
    """
    from walle_connectors.kafka.doctor import examine, examine_store  # noqa: PLC0415 - an extra
    from walle_connectors.kafka.pipeline import kafka_parts, load_kafka  # noqa: PLC0415 - an extra

    code, loaded = 0, load_kafka(options.file, options.set)
    checks = examine(kafka_parts(loaded))
    if snapshots := loaded.pipeline.spec.state.snapshots:
        store = examine_store(snapshots.place, dict(snapshots.options.items()))
        checks = chain(checks, [store])
    for check in checks:
        code = code or check.exit_code
        _say(
            options,
            f"{check.level:<5} {check.what}: {check.text}",
            {"level": check.level, "what": check.what, "text": check.text},
        )
    return code


def _say(options: argparse.Namespace, line: str, fields: dict[str, Any]) -> None:
    sys.stdout.write((json.dumps(fields, ensure_ascii=False) if options.json else line) + "\n")
    sys.stdout.flush()


def _count(text: str) -> int:
    value = int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else 0
    if not 1 <= value <= _REPLICAS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {_REPLICAS_MAX}")
    return value
