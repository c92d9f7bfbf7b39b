"""All of it together: network, Kafka, object store, nodes; what runs on them and what came out."""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.cluster.engine import EngineError, Network
from tests.cluster.nodes import CONTROL, HEAD, HOME, Done, Nodes, Started
from tests.cluster.pipeline import (
    EVENTS,
    FEATURES,
    MESSAGES,
    NAME,
    PARTITIONS,
    write_pipeline,
    write_rows,
)
from tests.cluster.ray_up import RayUp
from tests.cluster.services import S3, Service, brokers, start_kafka, start_s3
from tests.s3 import BUCKET

JOB: Final = "pipeline"
"""Folder of the kit with the pipeline's files, and the job's name."""

_WEB: Final = "127.0.0.1:6066"
_KEPT: Final = "10000"
_ROWS: Final = "rows.jsonl"
_SCRIPT_S: Final = 300.0


class Kit:
    """A cluster for tests. One thread; made by ``open_kit``."""

    def __init__(
        self, network: Network, folder: Path, program: str, workers: int, count: int
    ) -> None:
        """Start all machines; Ray is not started yet. See ``open_kit``."""
        self.folder = folder
        shutil.copytree(Path(__file__).parent / "inside", folder / "inside", dirs_exist_ok=True)
        (folder / JOB).mkdir()
        self.kafka: list[Service] = start_kafka(network, folder, count)
        (folder / "inside/brokers").write_text("\n".join(brokers(count)))
        shutil.move(folder / "ca.pem", folder / JOB)
        self.s3: Service = start_s3(network, program)
        self.nodes = Nodes(network, folder, workers)
        self.ray = RayUp(self.nodes, folder)
        write_pipeline(folder / JOB, brokers(count))
        self.make_topics(EVENTS, FEATURES, MESSAGES)

    @property
    def everybody(self) -> list[str]:
        """Names of head and workers."""
        return [HEAD, *self.nodes.workers]

    def make_topics(self, events: str, *others: str) -> None:
        """Make topics; blocks. Times of the others' records are the broker's."""
        self._script("topics", str(PARTITIONS), events, *others)

    def feed(self, copies: int = 1) -> int:
        """Write the sample into the topic, as fast as it goes; blocks until it is acknowledged.

        Args:
            copies: How often each user is there.

        Returns:
            How many rows.
        """
        rows = write_rows(self.folder / _ROWS, copies)
        self._script("feed", f"{HOME}/{_ROWS}", EVENTS, "0")
        return rows

    def begin_feed(self, per_s: float) -> Started:
        """Begin to write the sample at a rate, and return at once; ``feed.log`` has what it says.

        The sample is written again and again, each time with other devices, until ``end_feed``.

        Args:
            per_s: Rows a second.
        """
        write_rows(self.folder / _ROWS)
        command = ("python", f"{HOME}/inside/feed.py", f"{HOME}/{_ROWS}", EVENTS, str(per_s))
        return self.nodes.begin(CONTROL, *command, "endless", said=self.folder / "feed.log")

    def end_feed(self, feed: Started) -> None:
        """End what ``begin_feed`` began; returns when all rows are acknowledged.

        Raises:
            EngineError: Some were refused.
        """
        self.nodes.run(CONTROL, "pkill", "-TERM", "-f", "inside/feed.py")
        if feed.wait(_SCRIPT_S):
            raise EngineError(f"the feed failed: {(self.folder / 'feed.log').read_text()}")

    def run_reference(self) -> None:
        """Run the same over the same topic in one process that nobody disturbs; blocks."""
        self._walle("run", "reference.yaml", "--data-dir", "/var/lib/walle/reference", "--json")

    @contextmanager
    def cloud(self) -> Iterator[None]:
        """Run the cloud side on the control machine meanwhile."""
        where = ("--web-port", _WEB.rpartition(":")[2], "--data-dir", "/var/lib/walle/cloud")
        command = ("walle", "cloud", "pipeline.yaml", *where, "--keep", _KEPT)
        line = f"cd {HOME}/{JOB} && exec {' '.join(command)}"
        process = self.nodes.begin(CONTROL, "sh", "-c", line, said=self.folder / "cloud.log")
        try:
            yield
        finally:
            self.nodes.run(CONTROL, "pkill", "-f", "walle cloud", check=False)
            process.wait()

    def submit(
        self,
        *options: str,
        name: str = JOB,
        runtime: str = "cluster",
        file: str = "pipeline.yaml",
    ) -> None:
        """``ray job submit`` of ``walle run`` over a pipeline; returns when it was accepted.

        Args:
            options: Of ``walle run``; ``--set spec.source.stopAtEnd=false`` for one that goes on.
            name: The job's; another one for each.
            runtime: Where its hosts are.
            file: The pipeline's.
        """
        command = ("walle", "run", file, "--runtime", runtime, "--json")
        where = ("--data-dir", "/var/lib/walle/data")
        self.ray.submit(JOB, *command, *where, *options, name=name, environ=S3)

    def await_report(self, timeout_s: float, name: str = JOB) -> dict[str, Any]:
        """Wait until a job ends well, and return its report; blocks.

        Args:
            timeout_s: Longest wait.
            name: The job's.

        Raises:
            EngineError: It failed, or did not end.
        """
        said = self.ray.await_job(name, timeout_s)
        lines = [line for line in said.splitlines() if line.startswith("{")]
        if not lines:
            raise EngineError(f"the job has no report: {said}")
        report: dict[str, Any] = json.loads(lines[-1])
        return report

    def scale(self, hosts: int, pipeline: str = NAME) -> None:
        """``walle scale`` on the head; 0 stops the run, and waits for its end."""
        environ = ("env", "RAY_ADDRESS=auto")
        self.nodes.run(HEAD, *environ, "walle", "scale", pipeline, "--hosts", str(hosts))

    def await_work(
        self, since_s: float, timeout_s: float, topic: str = FEATURES, count: int = 0
    ) -> None:
        """Wait until features have come of all partitions; blocks.

        Args:
            since_s: From when on, in Unix time.
            timeout_s: Longest wait.
            topic: Of the features.
            count: Number of records that it must have in all.

        Raises:
            EngineError: It did not come to that.
        """
        self._script("await_records", topic, str(since_s), str(timeout_s), str(count))

    def await_hosts(
        self, count: int, timeout_s: float, *, pipeline: str = NAME, copies: int = 0
    ) -> None:
        """Wait until a pipeline has hosts at work that own all partitions; blocks.

        Args:
            count: How many hosts.
            timeout_s: Longest wait.
            pipeline: Its name.
            copies: How many warm copies of partitions there must be, too.

        Raises:
            EngineError: It did not come to that.
        """
        numbers = (str(count), str(timeout_s), str(copies))
        command = ("python", f"{HOME}/inside/await_hosts.py", pipeline, *numbers)
        self.nodes.run(HEAD, *command, timeout_s=2 * timeout_s)

    def silences(self, windows: Sequence[tuple[float, float]]) -> list[dict[int, float]]:
        """Return how long no feature came of each partition, at most, in seconds; blocks.

        Args:
            windows: From when until when, in Unix time.
        """
        said = json.loads(self._script("silences", FEATURES, json.dumps(windows)).stdout)
        return [{int(number): seconds for number, seconds in each.items()} for each in said]

    def compare(self, timeout_s: float = 60.0) -> dict[str, Any]:
        """Compare the cloud side's features with the reference's; blocks until it has them all.

        Args:
            timeout_s: Longest wait.

        Returns:
            ``features``, ``devices``: how many lines; ``differing``: some that differ; ``counts``: the
            cloud side's own.
        """
        done = self._script(
            "compare", _WEB, "/var/lib/walle/reference", str(timeout_s), check=False
        )
        if not done.stdout.startswith("{"):
            raise EngineError(f"nothing was compared: {done.stderr}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def snapshots(self) -> list[str]:
        """Return the names of the objects that snapshots consist of; blocks."""
        return self._script("objects", json.dumps(S3), BUCKET).stdout.split()

    def keep_logs(self) -> None:
        """Copy what Ray and its jobs wrote into the folder's ``logs``, by machine."""
        for name in self.everybody:
            self.nodes.fetch(name, "/tmp/ray/session_latest/logs/.", self.folder / "logs" / name)  # noqa: S108

    def _script(self, name: str, *arguments: str, check: bool = True) -> Done:
        command = ("python", f"{HOME}/inside/{name}.py", *arguments)
        return self.nodes.run(CONTROL, *command, check=check, timeout_s=_SCRIPT_S)

    def _walle(self, *arguments: str) -> None:
        line = f"cd {HOME}/{JOB} && walle {' '.join(arguments)}"
        self.nodes.run(CONTROL, "sh", "-ec", line, timeout_s=_SCRIPT_S)


@contextmanager
def open_kit(folder: Path, program: str, workers: int = 2, count: int = 1) -> Iterator[Kit]:
    """Start the machines, and remove them behind.

    Args:
        folder: For everything; new.
        program: versitygw on this machine.
        workers: Nodes beside the head.
        count: Brokers, 1 or 3.

    Raises:
        EngineError: Docker refused it.
    """
    network = Network()
    try:
        yield Kit(network, folder.absolute(), program, workers, count)
    finally:
        network.close()
