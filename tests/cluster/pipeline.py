"""The main job over Kafka: rows of the real sample as records, features up, state in snapshots."""

import csv
import gzip
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tests.cluster.engine import ROOT
from tests.cluster.services import SNAPSHOTS

PARTITIONS: Final = 8
EVENTS: Final = "views"
FEATURES: Final = "features"
MESSAGES: Final = "messages"
NAME: Final = "ipv-cluster"
LOADS: Final = "loads"
LOAD_FEATURES: Final = "load-features"
LOAD_MESSAGES: Final = "load-messages"
LOAD: Final = "load-cluster"

_SAMPLE: Final = ROOT / "configs/samples/kuairand_feed.csv.gz"
_MAIN_JOB: Final = ROOT / "configs/ipv.yaml"
# keys of files alone
_OF_FILES: Final = ("connector", "path", "format", "columns", "identity", "order")


def write_pipeline(folder: Path, brokers: Sequence[str], every: str = "2s") -> None:
    """Write ``pipeline.yaml``, and ``reference.yaml``: the same where nothing can be disturbed.

    Args:
        folder: Where to; it has ``ca.pem`` already.
        brokers: Addresses.
        every: Time between two snapshots of a partition.
    """
    pipeline, task = yaml.safe_load_all(_MAIN_JOB.read_text())
    shutil.copyfile(_MAIN_JOB.with_suffix(".py"), folder / "ipv.py")
    kafka = {"connector": "kafka", "brokers": [*brokers], "tls": {"ca": "ca.pem"}}
    spec = pipeline["spec"]
    mapping = {key: value for key, value in spec["source"].items() if key not in _OF_FILES}
    spec["source"] = {**kafka, "topic": EVENTS, "stopAtEnd": True, "mapping": mapping}
    # a view ends ahead of the rows behind it: nothing of a device may be late for that
    spec["sequence"] |= {"outOfOrder": "1h"}
    spec["runtime"] = {"partitions": PARTITIONS, "hosts": 1}
    pipeline["metadata"]["name"] = NAME
    _write(folder / "reference.yaml", pipeline, task)
    spec["tunnel"] = {**kafka, "topic": FEATURES, "downTopic": MESSAGES}
    spec["state"] = {"snapshots": {"url": SNAPSHOTS, "every": every}}
    _write(folder / "pipeline.yaml", pipeline, task)


def write_load(folder: Path, brokers: Sequence[str]) -> None:
    """Write ``load.yaml``: devices with much state, and rows whose way is timed.

    Args:
        folder: Where to; it has ``ca.pem`` already.
        brokers: Addresses.
    """
    inside = Path(__file__).parent / "inside"
    shutil.copyfile(inside / "load_task.py", folder / "load_task.py")
    kafka = {"connector": "kafka", "brokers": [*brokers], "tls": {"ca": "ca.pem"}}
    page = {"page": "'load'", "instance": "n"}
    events = [
        {"kind": "page_enter", **page, "contents": {"pad": "pad", "sent": "sent"}},
        {"kind": "page_exit", **page},
    ]
    mapping = {"device": "user", "time": "t", "events": events}
    spec = {
        "source": {**kafka, "topic": LOADS, "stopAtEnd": True, "mapping": mapping},
        "runtime": {"partitions": PARTITIONS, "hosts": 3},
        "tunnel": {**kafka, "topic": LOAD_FEATURES, "downTopic": LOAD_MESSAGES},
        "state": {"snapshots": {"url": f"{SNAPSHOTS}-load", "every": "2s"}},
        "tasks": [{"task": "load"}],
    }
    task = {"script": "load_task.py", "triggers": [{"sequence": ["page_exit"]}]}
    kinds = (("Pipeline", LOAD, spec), ("Task", "load", task))
    documents = [
        {"apiVersion": "walle/v1", "kind": kind, "metadata": {"name": name}, "spec": each}
        for kind, name, each in kinds
    ]
    _write(folder / "load.yaml", *documents)


def write_rows(file: Path, copies: int = 1) -> int:
    """Write the sample as JSON Lines of device, time and row, in the order of time.

    Args:
        file: Where to.
        copies: How often each user is there, with names of their own: more of the same load.

    Returns:
        How many rows.
    """
    with gzip.open(_SAMPLE, "rt", newline="") as sample:
        rows: list[dict[str, Any]] = [dict(row) for row in csv.DictReader(sample)]
    types = yaml.safe_load(_MAIN_JOB.read_text().partition("\n---\n")[0])["spec"]["source"][
        "columns"
    ]
    for row in rows:
        row |= {name: int(row[name]) for name in types}
    rows.sort(key=lambda row: row["time_ms"])
    with file.open("w") as lines:
        for row in rows:
            for number in range(copies):
                user = row["user_id"] if number == 0 else f"{row['user_id']}-{number}"
                lines.write(json.dumps([user, row["time_ms"], {**row, "user_id": user}]) + "\n")
    return len(rows) * copies


def _write(file: Path, *documents: Any) -> None:
    file.write_text(yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True))
