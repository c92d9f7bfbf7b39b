"""The release service as a user starts it: real processes, real HTTP over loopback."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import closing, contextmanager
from http.client import HTTPConnection

import pytest

from walle_deploy.model.profile import DeviceProfile, encode_profile
from walle_deploy.model.pushes import Push, PushedFile
from walle_deploy.model.releases import VersionFiles
from walle_deploy.release.commands import ReleaseCommands
from walle_deploy.store.opening import open_store

msgspec = pytest.importorskip("msgspec")
for _name in ("httptools", "starlette", "uvicorn", "uvloop"):
    pytest.importorskip(_name, reason="the extra `deploy` is not installed")

pytestmark = pytest.mark.integration

COMMAND = """
import argparse
from walle_deploy.cli.serve import add
parser = argparse.ArgumentParser()
add(parser.add_subparsers())
options = parser.parse_args()
raise SystemExit(options.run(options))
"""
SETUP = """\
apiVersion: walle/v1
kind: ReleaseService
metadata: {name: test}
spec:
  cdn: http://cdn.test/
  poll: 20ms
  limits: {headerBytes: 2KiB, bodyBytes: 100}
"""


def give(folder, version):
    """Say which version of the one task devices have."""
    with closing(open_store(str(folder / "releases.db"))) as store:
        file = PushedFile("t", f"targets/{version}", "0" * 64, 1)
        ReleaseCommands(store, "ann").publish("s/t", version, VersionFiles((file,)))
        with store.writing() as transaction:
            transaction.set_stable("s/t", version)


@contextmanager
def served(folder, *arguments):
    (folder / "service.yaml").write_text(SETUP)
    give(folder, "v1")
    given = ["--store", str(folder / "releases.db"), "--listen", "127.0.0.1:0", "--json"]
    given += ["--files", "http://files.test/"]
    command = [
        sys.executable,
        "-c",
        COMMAND,
        "serve",
        str(folder / "service.yaml"),
        *given,
        *arguments,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        port = int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])
        yield process, port
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    folder = tmp_path_factory.mktemp("service")
    with served(folder) as (process, port):
        yield folder, process, port


def asked(port, path="/v1/check", connection=None, **headers):
    made = connection or HTTPConnection("127.0.0.1", port, timeout=30)
    made.request(
        "GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    answer = made.getresponse()
    body = answer.read()
    if connection is None:
        made.close()
    return answer, body


def profile(device="d-1", **tasks):
    return encode_profile(
        DeviceProfile(
            device, "shop", tasks={f"s/{task}": version for task, version in tasks.items()}
        )
    )


def raw(port, data):
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def test_checks_over_one_connection(one):
    port = one[2]
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    for _ in range(3):
        answer, body = asked(port, connection=connection, walle_profile=profile())
        assert (answer.status, answer.getheader("cache-control")) == (200, "no-store")
        push = msgspec.json.decode(body, type=Push)
        assert [each.url for each in push.tasks[0].files] == ["http://cdn.test/targets/v1"]
        answer, body = asked(port, connection=connection, walle_profile=profile(t="v1"))
        assert (answer.status, body) == (204, b"")
        answer, body = asked(port, connection=connection, walle_profile="%%%")
        assert answer.status == 400
        assert "not base64url of a profile" in json.loads(body)["error"]
    answer, _ = asked(port, connection=connection)
    assert answer.status == 400
    connection.close()


def test_what_people_and_programs_ask(one):
    port = one[2]
    asked(port, walle_profile=profile("d-7", own="v1"))
    assert asked(port, "/healthz")[1] == b"ok\nauthentication: open\n"
    assert asked(port, "/readyz")[1] == b"ready\n"
    assert b"walle_release_checks_total" in asked(port, "/metrics")[1]
    assert {"task": "s/own", "version": "v1", "devices": 1} in json.loads(
        asked(port, "/v1/known")[1]
    )["versions"]
    assert asked(port, "/else")[0].status == 404


def test_what_is_too_long_is_refused(one):
    port = one[2]
    assert asked(port, content_length="101", walle_profile=profile())[0].status == 413
    assert raw(port, b"GET /v1/check HTTP/1.1\r\nx: " + b"y" * 3_000).startswith(b"HTTP/1.1 431 ")
    assert raw(port, b"no HTTP at all\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert b'answer="bad_request"} 1\n' in asked(port, "/metrics")[1]


def test_a_new_table_is_in_use_without_a_restart(one):
    folder, _, port = one
    give(folder, "v2")
    # each request is a turn of the service's loop, and it looks every 20 ms
    while asked(port, walle_profile=profile("d-9", t="v1"))[0].status == 204:
        pass
    push = msgspec.json.decode(asked(port, walle_profile=profile("d-9", t="v1"))[1], type=Push)
    assert push.tasks[0].version == "v2"
    give(folder, "v1")
    while asked(port, walle_profile=profile("d-9", t="v1"))[0].status == 200:
        pass


def test_it_stops_on_a_signal_and_a_killed_worker_is_started_anew(tmp_path):
    with served(tmp_path, "--workers", "2") as (process, port):
        workers = set()
        while len(workers) < 3:
            found = json.loads(asked(port, "/v1/known")[1])["worker"]
            if found not in workers:
                workers.add(found)
                if len(workers) == 1:
                    os.kill(int(found.partition("-")[0]), signal.SIGKILL)
        # whichever is asked shows what both count, once they have told each other
        while len(set(re.findall(rb'known_devices{worker="(.*)"', asked(port, "/metrics")[1]))) < 2:
            pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_workers_end_with_the_process_that_started_them_also_when_it_is_killed(tmp_path):
    with served(tmp_path, "--workers", "2") as (process, port):
        while len(re.findall(rb'known_devices{worker="(.*)"', asked(port, "/metrics")[1])) < 2:
            pass
        process.kill()
        process.communicate(timeout=60)  # at an end when the last of them has closed its output
        with socket.create_server(("127.0.0.1", port), reuse_port=False) as again:
            assert again.getsockname()[1] == port
