"""Kills while three sinks are served: each holds exactly the features of an undisturbed run.

``WALLE_SINK_KILLS`` is how many; 50 are the campaign of the project.
"""

import os
import random
import signal
import subprocess
import sys
from contextlib import suppress

import psycopg
import pyarrow.dataset as ds
import pytest

from tests.integration.kafka.topics_of_tests import committed_records
from walle_deploy.testing.postgres import TemporaryPostgres, find_postgres

pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka,
    pytest.mark.skipif(find_postgres() is None, reason="no PostgreSQL on this machine"),
]

KILLS = int(os.environ.get("WALLE_SINK_KILLS", "6"))
POINTS = ("sink.after", "cloud.before", "cloud.after", "commit.after")


class Place:
    """Where one run's features go."""

    def __init__(self, folder, address, topic, url):
        self.folder, self.address, self.topic, self.url = folder, address, topic, url
        self.table = f"of_{topic.replace('-', '_')}"

    def command(self):
        sinks = {
            "lake.connector": "parquet",
            "lake.path": self.folder / "lake",
            "lake.every": "100ms",
            "db.connector": "postgres",
            "db.url": self.url,
            "db.table": self.table,
            "out.connector": "kafka",
            "out.brokers": self.address,
            "out.topic": self.topic,
        }
        given = [f"spec.sinks.{key}={value}" for key, value in sinks.items()]
        given += ["spec.runtime.batchEvents=200", "spec.runtime.latencyTarget=20ms"]
        command = [sys.executable, "-m", "walle_stream.cli", "run", "ipv", "--json"]
        return [
            *(*command, "--data-dir", str(self.folder / "d")),
            *(part for each in given for part in ("--set", each)),
        ]

    def run(self, point="", after_s=None):
        process = subprocess.Popen(
            self.command(),
            env={**os.environ, "WALLE_CRASH": point},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        with suppress(subprocess.TimeoutExpired):
            process.wait(after_s)
        process.kill()
        _, errors = process.communicate()
        return process.returncode, errors

    def features(self):
        """Yield the rows of each sink (device, number, task, feature, encoding), unordered."""
        table = ds.dataset(self.folder / "lake", partitioning="hive").to_table().to_pylist()
        yield (
            "parquet",
            [
                (
                    row["device_id"],
                    row["sequence_number"],
                    row["task"],
                    row["feature"],
                    row["encoding"],
                )
                for row in table
            ],
        )
        with psycopg.connect(self.url, client_encoding="utf8") as connection:
            query = psycopg.sql.SQL(
                "SELECT device_id, sequence_number, task, feature::text, encoding FROM {}"
            )
            rows = connection.execute(query.format(psycopg.sql.Identifier(self.table)))
            yield "postgres", list(rows)
        yield (
            "kafka",
            [
                (made.device_id, made.sequence_number, made.task, value.decode(), made.encoding)
                for made, value in committed_records(self.address, self.topic, 3)
            ],
        )


def test_every_sink_has_each_feature_once_whatever_was_killed(address, topics, tmp_path):
    chance = random.Random(KILLS)
    with TemporaryPostgres(find_postgres()) as server:
        whole = Place(tmp_path / "whole", address, topics.make(3), server.url)
        code, errors = whole.run()
        assert code == 0, errors
        truth = dict(whole.features())
        expected = sorted(truth["parquet"])
        assert len(expected) > 10_000
        killed = Place(tmp_path / "killed", address, topics.make(3), server.url)
        kills = 0
        while kills < KILLS:
            point = chance.choice(["", *POINTS])
            at = f"{point}:{chance.randrange(1, 6)}" if point else ""
            code, errors = killed.run(at, None if point else chance.uniform(0.8, 2.5))
            kills += code == -signal.SIGKILL
            assert code in {0, -signal.SIGKILL}, errors
        code, errors = killed.run()
        assert code == 0, errors
        for place in (whole, killed):
            for name, found in place.features():
                assert sorted(found) == expected, name
