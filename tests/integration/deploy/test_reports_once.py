"""The same reports to several release services of one store: real processes over real HTTP."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPException

import pytest

pytest.importorskip("psycopg", reason="the extra `deploy` is not installed")


from tests.unit.deploy.monitoring.reporting import frame, health, report
from walle_deploy.model.releases import VersionFiles
from walle_deploy.monitoring.transport import HttpReportSink
from walle_deploy.store.opening import open_store
from walle_deploy.testing.postgres import TemporaryPostgres, find_postgres
from walle_stream.wire.report_batch import encode_batch

for _name in ("httptools", "starlette", "uvicorn", "uvloop"):
    pytest.importorskip(_name, reason="the extra `deploy` is not installed")

pytestmark = pytest.mark.integration

TASK = "shop/ipv"
PARTITIONS, ROUNDS = 3, 8
COMMAND = """
import argparse
from walle_deploy.cli.serve import add
parser = argparse.ArgumentParser()
add(parser.add_subparsers())
options = parser.parse_args()
raise SystemExit(options.run(options))
"""


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.full)])
def address(request, tmp_path):
    if request.param == "sqlite":
        yield str(tmp_path / "releases.db")
        return
    if find_postgres() is None:
        pytest.skip("no PostgreSQL on this machine")
    with TemporaryPostgres(find_postgres()) as server:
        yield server.url


@pytest.fixture
def store(address):
    store = open_store(address)
    with store.writing() as transaction:
        transaction.put_version(TASK, "v1", VersionFiles(()))
    yield store
    store.close()


@contextmanager
def service(address, workers=1, **environment):
    given = ["--store", address, "--listen", "127.0.0.1:0", "--workers", str(workers), "--json"]
    given += ["--files", "http://127.0.0.1:9/"]
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "serve", *given],
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            **environment,
        },
    )
    try:
        port = int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])
        yield process, port
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.communicate()


def batch(first, last, partitions=PARTITIONS):
    return [
        frame(n, report([(f"d{n}-{place}", 1, {}), ("all", 1, {"E": 1})]), partition=place)
        for place in range(partitions)
        for n in range(first, last + 1)
    ]


def posted(port, frames):
    """Return how many were new, or None where there was no answer of 2xx."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", "/v1/reports", body=encode_batch(frames))
        answer = connection.getresponse()
        body = json.loads(answer.read())
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()
    return body["new"] if answer.status == 200 else None


def test_a_long_report_of_many_devices_is_counted(store, address):
    names = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(20_000)]
    long = frame(1, report([(name, 1, {}) for name in names]), incarnation="cd" * 8)
    assert len(long.body) > 500_000  # much more than a check may have
    with service(address) as (_, port):
        sink = HttpReportSink(f"http://127.0.0.1:{port}")
        sink.take([long, *batch(1, 3)])
        sink.close(60)
    assert sink.dropped == 0
    assert health(store).devices == 20_000 + 3 * PARTITIONS + len(["all"])


def posted_at_once(ports, frames):
    found, barrier = [], threading.Barrier(len(ports))

    def post(port):
        barrier.wait()
        found.append(posted(port, frames))

    threads = [threading.Thread(target=post, args=(port,)) for port in ports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def expect(store, frames):
    found = health(store)
    assert (found.runs, found.failures, found.devices) == (2 * frames, frames, frames + 1)
    assert sum(found.latency_us.values()) == found.device_minutes >= found.devices


def test_what_is_sent_to_two_services_at_once_counts_once(store, address):
    with service(address) as (_, one), service(address) as (_, two):
        for n in range(1, ROUNDS + 1):
            # the last ones come again: who sends has not heard
            new = posted_at_once([one, two, one, two], batch(max(1, n - 2), n))
            assert sum(new) == PARTITIONS
        unknown = [frame(1, report([("d", 1, {})], "v9"), partition=99)]
        assert posted(one, unknown) == 0
    expect(store, PARTITIONS * ROUNDS)
    assert health(store, "v9").runs == 0


def test_what_is_sent_to_workers_of_one_service_counts_once(tmp_path):
    address = str(tmp_path / "releases.db")
    store = open_store(address)
    with store.writing() as transaction:
        transaction.put_version(TASK, "v1", VersionFiles(()))
    with service(address, 2) as (_, port):
        for n in range(1, ROUNDS + 1):
            assert sum(posted_at_once([port] * 4, batch(n, n))) == PARTITIONS
    expect(store, PARTITIONS * ROUNDS)
    store.close()


def test_what_a_killed_service_had_at_hand_counts_once_at_another(tmp_path):
    address = str(tmp_path / "releases.db")
    store = open_store(address)
    with store.writing() as transaction:
        transaction.put_version(TASK, "v1", VersionFiles(()))
    with ExitStack() as stack:
        _, other = stack.enter_context(service(address))
        for n, point, counted in ((1, "reports.before:3", 0), (5, "reports.after:3", PARTITIONS)):
            dying, port = stack.enter_context(service(address, WALLE_CRASH=point))
            found = [posted(port, batch(each, each)) for each in (n, n + 1, n + 2)]
            assert found == [PARTITIONS, PARTITIONS, None]
            assert dying.wait(30) == -signal.SIGKILL
            assert posted(other, batch(n + 1, n + 3)) == 2 * PARTITIONS - counted
        expect(store, 8 * PARTITIONS)
    store.close()


def test_a_service_that_stands_still_counts_nothing_twice(tmp_path):
    address = str(tmp_path / "releases.db")
    store = open_store(address)
    with store.writing() as transaction:
        transaction.put_version(TASK, "v1", VersionFiles(()))
    with service(address) as (process, port), service(address) as (_, other):
        assert posted(port, batch(1, 2)) == 2 * PARTITIONS
        process.send_signal(signal.SIGSTOP)
        found = []
        waiting = threading.Thread(target=lambda: found.append(posted(port, batch(2, 4))))
        waiting.start()
        assert posted(other, batch(1, 3)) == PARTITIONS
        expect(store, 3 * PARTITIONS)
        process.send_signal(signal.SIGCONT)
        waiting.join()
        assert found == [PARTITIONS]
        expect(store, 4 * PARTITIONS)
    store.close()
