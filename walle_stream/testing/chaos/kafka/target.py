"""A pipeline over Kafka as a target: its processes and its roles.

The plan's pipeline has the source ``simulator``. Its output is written once to a file, for the
unkilled run, and to a topic in every life. The hosts of ``KafkaTarget`` run on one machine and
share a data directory. With ``KafkaMachinesTarget`` each host has its own, and state moves as
snapshots; there an owner that was cut off continues to write.

Roles: ``host``, ``cloud``, ``broker`` and ``sender`` are killed. Other faults are counted
separately: ``stop`` and ``cloud-stop`` (SIGSTOP beyond the session timeout), ``join`` (one more
host comes and goes), ``cut`` (a host without a network), ``pause`` (a broker that does not answer).
"""

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from walle_stream.app.queries.query import RunState, canonical_state
from walle_stream.app.resources import find_definition
from walle_stream.errors import (
    BrokerUnreachableError,
    CampaignError,
    ChaosError,
    CloudStalledError,
    StopTimeoutError,
    StoreLockedError,
    TopicError,
    TunnelError,
)
from walle_stream.testing.chaos.kafka.exchange import with_exchange
from walle_stream.testing.chaos.kafka.feed import Feed, Line, place_alike, read_lines
from walle_stream.testing.chaos.kafka.life import TABLE, KafkaLife, LifeParts
from walle_stream.testing.chaos.kafka.members import Member
from walle_stream.testing.chaos.kafka.place import HOSTS_MAX, Place
from walle_stream.testing.chaos.kafka.sender import PER_DEVICE, main, send_messages
from walle_stream.testing.chaos.kafka.standing import Standing
from walle_stream.testing.chaos.kafka.table import KEPT, reference_lines
from walle_stream.testing.chaos.local import MARK, LocalRunning, LocalTarget, documents
from walle_stream.testing.chaos.plan import ChaosPlan
from walle_stream.testing.chaos.targets import Role
from walle_stream.types import partition_of

EVENTS_PER_S: Final = 400.0
"""Rate of the input. It is low, so that all processes stay busy during the faults."""

_PARTITIONS: Final = 4
_WORKERS: Final = 2
"""Number of workers of the cloud side."""

_SOURCE: Final = "spec.source."
_PATIENCE_S: Final = 20

_HOST_ENDS: Final = {
    StoreLockedError.exit_code: "the partition's last owner is stopped and holds its database",
    BrokerUnreachableError.exit_code: "it started while no broker answered",
    StopTimeoutError.exit_code: "it got SIGTERM while it waited for a broker that was down",
}
_CLOUD_ENDS: Final = {
    BrokerUnreachableError.exit_code: "it started while no broker answered",
    CloudStalledError.exit_code: "records waited, and it made no progress",
    TunnelError.exit_code: "a broker that was still starting answered with an error",
    TopicError.exit_code: "the broker was still starting and knew no topics yet",
}
_SENDER_ENDS: Final = {
    code: why for code, why in _CLOUD_ENDS.items() if code != CloudStalledError.exit_code
}


class KafkaTarget(LocalTarget):
    """A broker with groups of several ``walle run`` and ``walle cloud`` processes."""

    has_own_data = False
    """Whether each host has a data directory of its own."""

    def __init__(self, plan: ChaosPlan, folder: Path) -> None:
        """Prepare a target; the first life starts the broker.

        Args:
            plan: Plan of the campaign; its overrides of ``spec.source`` are keys of the simulator.
            folder: Folder for all files.

        Raises:
            CampaignError: The pipeline's source is not the simulator.
        """
        given = tuple(each for each in plan.overrides if each.startswith(_SOURCE))
        own = tuple(each for each in plan.overrides if each not in given)
        super().__init__(msgspec.structs.replace(plan, overrides=own), folder)
        self._home = folder / "kafka"
        self._devices = self._home / "devices.txt"
        self._pipeline = _pipeline(self._file)
        self._input_keys = _input_keys(self._pipeline, given)
        self._place: Place | None = None
        self._life: KafkaLife | None = None
        self._lines: list[Line] = []

    @property
    def roles(self) -> Sequence[Role]:
        """Hosts, cloud workers, sender and broker; a given broker gets no faults."""
        roles = [
            Role("host", ends_run=False, weight=0.5),
            Role("cloud", ends_run=False, weight=0.4),
            Role("sender", ends_run=False, weight=0.1),
            Role("stop", ends_run=False, weight=0.1, is_kill=False),
            Role("cloud-stop", ends_run=False, weight=0.1, is_kill=False),
            Role("join", ends_run=False, weight=0.1, is_kill=False),
        ]
        if not os.environ.get("WALLE_KAFKA"):
            roles += [
                Role("broker", ends_run=False, weight=0.15),
                Role("cut", ends_run=False, weight=0.1, is_kill=False),
                Role("pause", ends_run=False, weight=0.05, is_kill=False),
            ]
        return roles

    def clear(self) -> None:
        """End our broker, or delete our topics in a given one, and end all marked processes.

        Raises:
            ChaosError: A process does not end.
        """
        if self._place is not None:
            if not self._place.is_ours:
                self._place.delete_topics(self._token)
            self._place.close()
            self._place = None
        super().clear()

    def start(self, data_dir: Path, role: str = "", crash: str = "") -> Any:
        """Start a life, or the unkilled run; see ``Target.start``.

        Raises:
            ChaosError: The broker has lost the life's topics.
            BrokerError: The broker does not start.
        """
        del role, crash
        self._home.mkdir(exist_ok=True)
        file = self._input()
        self._lines = self._lines or read_lines(file, _PARTITIONS)
        names = dict.fromkeys(line.device.decode() for line in self._lines)
        self._devices.write_text("".join(f"{name}\n" for name in names))
        if _is_reference(data_dir):
            return self._start_reference(data_dir, file)
        if self._place is None:
            self._place = Place(self._home / "broker", {MARK: str(self._folder)})
        self._life = self._start_life(data_dir, self._place)
        return self._life

    def standing(self, data_dir: Path) -> RunState | None:
        """Return the progress: None before the first features, then whether the life is over."""
        del data_dir
        life = self._life
        if life is None or not life.has_begun:
            return None
        return RunState(1, is_complete=not life.is_live)

    def outcome(self, data_dir: Path) -> Mapping[str, Sequence[bytes]]:
        """Return all features, the cloud side's row of each device, and the devices' state.

        Args:
            data_dir: Data directory of a finished life or of the unkilled run.
        """
        if _is_reference(data_dir):
            return {**reference_lines(data_dir), "state": sorted(_state_lines([data_dir]))}
        table = msgspec.json.decode((data_dir / TABLE).read_bytes(), type=dict[str, list[bytes]])
        return {**table, "state": sorted(_state_lines(self._data_dirs(data_dir)))}

    # Parts of a life

    def _input(self) -> Path:
        file = self._home / "input.jsonl"
        if not file.exists():
            new = file.with_suffix(".new")
            self._walle("simulate", str(new), *_sets(self._input_keys))
            new.write_bytes(place_alike(new.read_bytes(), _PARTITIONS))
            new.rename(file)
        return file

    def _start_reference(self, data_dir: Path, file: Path) -> LocalRunning:
        spec = {**self._pipeline["spec"], "source": {"connector": "events", "path": str(file)}}
        spec.pop("tunnel", None)
        self._file = self._write(self._home / "reference.yaml", spec, "reference")
        confirmed = self._home / "reference-confirmed"
        confirmed.unlink(missing_ok=True)
        send_messages(self._file, self._devices, confirmed, data_dir=data_dir)
        return super().start(data_dir)

    def _start_life(self, folder: Path, place: Place) -> KafkaLife:
        (folder / "said").mkdir(parents=True, exist_ok=True)
        name = f"chaos-{self._token}-{folder.name}"
        topics = events, features, messages = [
            f"{name}-{what}" for what in ("events", "features", "messages")
        ]
        written = _made(folder, place, topics)
        # each of the two Kafka libraries serves one of the two targets
        driver = "confluent" if self.has_own_data else "kafka-python"
        source = {
            "connector": "kafka",
            "driver": driver,
            "brokers": place.address,
            "topic": events,
            "group": name,
            "sessionTimeout": f"{place.session_ms}ms",
            "pollInterval": "20s",
        }
        tunnel = {
            "connector": "kafka",
            "driver": driver,
            "brokers": place.address,
            "topic": features,
            "downTopic": messages,
        }
        spec = {**self._pipeline["spec"], "source": source, "tunnel": tunnel}
        if self.has_own_data:
            snapshots = {"path": str(folder / "snapshots"), "every": "1s"}
            spec["state"] = {**spec.get("state", {}), "snapshots": snapshots}
        file = self._write(folder / "pipeline.yaml", spec, name)
        webs = [f"127.0.0.1:{_free_port()}" for _ in range(_WORKERS)]
        data = self._data_dirs(folder)
        return KafkaLife(
            LifeParts(
                place=place,
                hosts=[
                    self._host(index, file, data[index], folder, place)
                    for index in range(HOSTS_MAX)
                ],
                clouds=[self._cloud(n, file, folder, web) for n, web in enumerate(webs)],
                sender=self._sender(file, folder),
                feed=Feed(place.client, events, self._lines, EVENTS_PER_S, written),
                standing=Standing(list(dict.fromkeys(data)), _PARTITIONS),
                events=events,
                features=features,
                messages=messages,
                group=f"walle-cloud-{name}",
                web=webs[0],
                lines=self._lines,
                partitions=_PARTITIONS,
                folder=folder,
            )
        )

    def _host(self, index: int, file: Path, data_dir: Path, folder: Path, place: Place) -> Member:
        address = place.address_of(index)
        overrides = [
            f"spec.runtime.batchEvents={self.batch_events}",
            *self._plan.overrides,
            f"spec.runtime.partitions={_PARTITIONS}",
            f"spec.source.brokers={address}",
            f"spec.tunnel.brokers={address}",
        ]

        def command(is_bounded: bool) -> list[str]:
            more = ["spec.source.stopAtEnd=true"] if is_bounded else []
            return [
                *_WALLE,
                *("run", str(file), "--data-dir", str(data_dir), "--json", "--hosts", "1"),
                *_sets([*overrides, *more]),
            ]

        return self._member(f"host-{index}", command, folder, _HOST_ENDS)

    def _cloud(self, index: int, file: Path, folder: Path, web: str) -> Member:
        host, _, port = web.partition(":")
        data = str(folder / f"cloud-{index}")
        command = [
            *_WALLE,
            *("cloud", str(file), "--data-dir", data, "--keep", str(KEPT)),
            *("--web-host", host, "--web-port", port, "--patience", str(_PATIENCE_S)),
        ]
        if self.has_own_data:
            command += ["--snapshots", str(folder / "snapshots-cloud"), "--snapshot-every", "1"]
        return self._member(f"cloud-{index}", lambda _is_bounded: command, folder, _CLOUD_ENDS)

    def _sender(self, file: Path, folder: Path) -> Member:
        count = len({line.device for line in self._lines}) * PER_DEVICE
        per_s = count * EVENTS_PER_S / len(self._lines)
        command = [sys.executable, "-P", "-c", f"from {main.__module__} import main; main()"]
        command += [str(file), str(self._devices), str(folder / "confirmed")]

        def paced(is_bounded: bool) -> list[str]:
            return command if is_bounded else [*command, "--per-s", str(per_s)]

        return self._member("sender", paced, folder, _SENDER_ENDS)

    def _data_dirs(self, folder: Path) -> list[Path]:
        if not self.has_own_data:
            return [folder / "data"] * HOSTS_MAX
        return [folder / f"data-{index}" for index in range(HOSTS_MAX)]

    def _member(
        self,
        name: str,
        command: Callable[[bool], Sequence[str]],
        folder: Path,
        ends: Mapping[int, str],
    ) -> Member:
        return Member(name, command, self.environ(), folder / "said", ends)

    def _write(self, path: Path, spec: Mapping[str, Any], name: str) -> Path:
        runtime = {**spec.get("runtime", {}), "partitions": _PARTITIONS}
        spec, exchange = with_exchange(spec, self._home)
        pipeline = {
            **self._pipeline,
            "metadata": {"name": name},
            "spec": {**spec, "runtime": runtime},
        }
        rest = [each for each in documents(self._source_file) if each.get("kind") != "Pipeline"]
        rest.append(exchange)
        for task in rest:
            if "script" in (task.get("spec") or {}):
                task["spec"]["script"] = str(self._source_file.parent / task["spec"]["script"])
        path.write_text(yaml.safe_dump_all([pipeline, *rest], allow_unicode=True, sort_keys=False))
        return path

    @property
    def _source_file(self) -> Path:
        return find_definition(self._plan.pipeline).resolve()

    @property
    def _token(self) -> str:
        # identifies the campaign, since a given broker may have another campaign's topics
        path = self._home / "token"
        if not path.exists():
            path.write_text(secrets.token_hex(4))
        return path.read_text()

    def _walle(self, *arguments: str) -> None:
        done = subprocess.run(  # noqa: S603 - our own command
            [*_WALLE, *arguments], env=self.environ(), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise CampaignError(f"the input cannot be created: {done.stderr.strip()}")


class KafkaMachinesTarget(KafkaTarget):
    """A ``KafkaTarget`` by librdkafka with a data directory per host, as on separate machines."""

    has_own_data = True


_WALLE: Final = (sys.executable, "-P", "-m", "walle_stream.cli")


def _is_reference(data_dir: Path) -> bool:
    return data_dir.name == "reference"


def _made(folder: Path, place: Place, topics: Sequence[str]) -> Sequence[int]:
    # makes topics once; returns the end offsets of the first
    has_topics = folder / "topics"
    if not has_topics.exists():
        for topic in topics:
            place.make(topic, _PARTITIONS)
        has_topics.touch()
    written = place.ends(topics[0], _PARTITIONS)
    if written is None:
        # a container's data were lost with the campaign that was killed
        raise ChaosError(
            f"the broker does not have the topics of {folder.name}: a life can be resumed only if "
            "the broker is a process (WALLE_KAFKA_PROVIDER=jdk); give another --folder"
        )
    return written


class _Whose(msgspec.Struct):
    device_id: str = ""
    deadline: str = ""


def _state_lines(folders: Sequence[Path]) -> Iterator[bytes]:
    # only devices' lines: counters of bytes and origins differ between a topic and a file
    owners, decode = Standing(folders, _PARTITIONS).owners, msgspec.json.Decoder(_Whose).decode
    for folder in set(owners):
        for line in canonical_state(folder):
            whose = decode(line)
            device_id = whose.device_id or whose.deadline
            if device_id and owners[partition_of(device_id, _PARTITIONS)] == folder:
                yield line


def _sets(overrides: Sequence[str]) -> list[str]:
    return [part for each in overrides for part in ("--set", each)]


def _pipeline(file: Path) -> dict[str, Any]:
    for each in documents(file):
        if each.get("kind") == "Pipeline":
            return each
    raise CampaignError(f"{file} holds no document of kind Pipeline: walle validate {file}")


def _input_keys(pipeline: Mapping[str, Any], given: Sequence[str]) -> list[str]:
    source = (pipeline.get("spec") or {}).get("source") or {}
    if source.get("connector") != "simulator":
        raise CampaignError(
            "the targets over Kafka create their own input: give a pipeline with the source "
            "'simulator', like shop"
        )
    keys = {name: value for name, value in source.items() if name != "connector"}
    keys |= dict(each.removeprefix(_SOURCE).split("=", 1) for each in given)
    return [f"{name}={value}" for name, value in keys.items()]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
