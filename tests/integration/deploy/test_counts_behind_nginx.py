"""Services and workers of one store are killed behind nginx: what was reported counts once."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest

pytest.importorskip("jwt", reason="the extra `deploy` is not installed")
pytest.importorskip("psycopg", reason="the extra `deploy` is not installed")

from tests.unit.deploy.monitoring.reporting import frame, grouped, publish, receipt
from walle_deploy.identity.signing import SigningKey
from walle_deploy.model.health import ReleaseHealthQuery
from walle_deploy.monitoring.reader import HealthReader
from walle_deploy.store.opening import open_store
from walle_deploy.store.receipt_keys import StoredReceiptKeys
from walle_deploy.testing.postgres import TemporaryPostgres, find_postgres
from walle_stream.wire.report_batch import encode_batch

pytestmark = [pytest.mark.integration, pytest.mark.full]

TASK, RELEASE = "shop/ipv", "r1"
VERSIONS = {"new": "v2", "control": "v1"}
SERVICES, WORKERS, RELAYS, DEVICES = 2, 2, 3, 40
SEED = 7
SETUP = """\
apiVersion: walle/v1
kind: ReleaseService
metadata: {name: shop}
spec:
  poll: 20ms
  proxies: [127.0.0.1]
  authentication: {mode: tokens, keys: keys.json, issuer: shop}
  budgets:
    device: {frames: 0, bytes: 0}
    address: {frames: 0, bytes: 0}
"""
# what a service that died may have taken is handed to another one, too
NGINX = """
daemon off;
master_process off;
pid FOLDER/pid;
error_log FOLDER/error.log;
events {}
http {
    access_log off;
    client_body_temp_path FOLDER/body;
    proxy_temp_path FOLDER/proxy;
    fastcgi_temp_path FOLDER/fastcgi;
    uwsgi_temp_path FOLDER/uwsgi;
    scgi_temp_path FOLDER/scgi;
    upstream services { SERVERS }
    server {
        listen 127.0.0.1:PORT;
        location = /v1/reports {
            proxy_pass http://services;
            proxy_next_upstream error timeout http_503 non_idempotent;
            proxy_set_header x-forwarded-for $proxy_add_x_forwarded_for;
        }
    }
}
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Service:
    """A release service that is started again on its port."""

    def __init__(self, folder, address):
        self.folder, self.address, self.port = folder, address, free_port()
        self.start()

    def start(self):
        given = ["--store", self.address, "--files", "http://127.0.0.1:9/", "--json"]
        given += ["--listen", f"127.0.0.1:{self.port}", "--workers", str(WORKERS)]
        command = [sys.executable, "-m", "walle_stream.cli", "serve", self.folder / "service.yaml"]
        self.process = subprocess.Popen(
            [*command, *given],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert json.loads(self.process.stdout.readline())["authentication"] == "tokens"

    def workers(self):
        """Process ids of its workers that live now."""
        task = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        found = []
        for pid in map(int, task.read_text().split()):
            name = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"resource_tracker" not in name:
                found.append(pid)
        return found

    def kill(self, rng):
        """Kill it, or one of its workers, which it starts again."""
        workers = self.workers()
        if workers and rng.random() < 0.5:
            os.kill(rng.choice(workers), signal.SIGKILL)
            return
        self.close(signal.SIGKILL)
        self.start()

    def close(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        # to the end of its output: workers that are left hold its address
        self.process.communicate()


class Relay(threading.Thread):
    """Sends frames of its devices until it is told to stop; each until it was taken."""

    def __init__(self, number, port, token, made, changed):
        super().__init__()
        self.number, self.port, self.made, self.changed = number, port, made, changed
        self.headers = {"authorization": f"Bearer {token}"}
        self.acknowledged, self.stop, self.error = 0, threading.Event(), None

    def run(self):
        try:
            while not self.stop.is_set():
                first = self.acknowledged + 1
                body = encode_batch([self.made(self.number, n) for n in (first, first + 1)])
                while not self.posted(body):
                    pass
                with self.changed:
                    self.acknowledged += 2
                    self.changed.notify_all()
        except BaseException as error:
            with self.changed:
                self.error = error
                self.changed.notify_all()
            raise

    def posted(self, body):
        try:
            with closing(HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
                connection.request("POST", "/v1/reports", body, self.headers)
                answer = connection.getresponse()
                answer.read()
        except (OSError, HTTPException):
            return False
        assert answer.status in {200, 502, 503, 504}, answer.status
        return answer.status == 200


@contextmanager
def nginx(folder, ports):
    command = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if command is None:
        pytest.skip("no nginx on this machine: .ci/servers.sh puts it there")
    port = free_port()
    servers = " ".join(f"server 127.0.0.1:{each} max_fails=0;" for each in ports)
    text = NGINX.replace("FOLDER", str(folder)).replace("PORT", str(port))
    (folder / "nginx.conf").write_text(text.replace("SERVERS", servers))
    running = subprocess.Popen([command, "-p", folder, "-c", folder / "nginx.conf"])
    try:
        yield port
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait()


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request, tmp_path):
    if request.param == "sqlite":
        yield str(tmp_path / "releases.db")
        return
    if find_postgres() is None:
        pytest.skip("no PostgreSQL on this machine: .ci/servers.sh puts it there")
    with TemporaryPostgres(find_postgres()) as server:
        yield server.url


def runs_of(group, relay, number):
    """What one frame says of devices of a group: (device, runs, failures)."""
    rng = random.Random(f"{group} {relay} {number}")
    names = rng.sample(range(DEVICES), 5)
    return [(f"{group}-{each}", 3, {"E": 1} if each % 10 == 0 else {}) for each in names]


def making(store):
    """Return what makes frames, with receipts that this store's services give."""
    source = StoredReceiptKeys(store)
    source.refresh()

    def receipt_of(device, group):
        issued = source.now_ms()
        return receipt(device, VERSIONS[group], RELEASE, group, issued, TASK, source.keys)

    held = {
        f"{group}-{number}": receipt_of(f"{group}-{number}", group)
        for group in VERSIONS
        for number in range(DEVICES)
    }

    def made(relay, number):
        reports = []
        for group, version in VERSIONS.items():
            found = grouped(runs_of(group, relay, number), group, version, RELEASE)
            for each in found.devices:
                each.receipt = held[each.device_id]
            reports.append(found)
        return frame(number, *reports, incarnation=f"{relay:02}" * 8)

    return made


def expected(group, relays):
    found, devices, failing = Counter(), set(), set()
    for relay in relays:
        for number in range(1, relay.acknowledged + 1):
            for device, runs, failures in runs_of(group, relay.number, number):
                found["runs"] += runs
                found["failures"] += sum(failures.values())
                devices.add(device)
                failing |= {device} if failures else set()
    return found["runs"], found["failures"], len(devices), len(failing)


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_counts_are_exact(tmp_path, address, kills):
    rng, changed = random.Random(SEED), threading.Condition()
    key = SigningKey.create("shop")
    key.write(tmp_path / "signing.json", tmp_path / "keys.json")
    (tmp_path / "service.yaml").write_text(SETUP)
    with ExitStack() as stack:
        store = stack.enter_context(closing(open_store(address)))
        publish(store, *VERSIONS.values())
        services = [Service(tmp_path, address) for _ in range(SERVICES)]
        for each in services:
            stack.callback(each.close)
        port = stack.enter_context(nginx(tmp_path, [each.port for each in services]))
        made = making(store)
        relays = [
            Relay(number, port, key.sign("relay", f"cloud-{number}"), made, changed)
            for number in range(RELAYS)
        ]
        for relay in relays:
            relay.start()
        try:
            for _ in range(kills):
                with changed:
                    wanted = sum(each.acknowledged for each in relays) + rng.randint(2, 40)
                    changed.wait_for(
                        lambda goal=wanted: (
                            sum(each.acknowledged for each in relays) >= goal
                            or any(each.error for each in relays)
                        )
                    )
                rng.choice(services).kill(rng)
        finally:
            for relay in relays:
                relay.stop.set()
            for relay in relays:
                relay.join()
        assert not any(each.error for each in relays)
        health = HealthReader(store).release_health(
            ReleaseHealthQuery(release_id=RELEASE, task=TASK, version="v2", before="v1", step_ms=0)
        )
        for group in VERSIONS:
            own = getattr(health, group).release
            counted = own.runs, own.failures, own.devices, own.failing_devices
            assert counted == expected(group, relays)
