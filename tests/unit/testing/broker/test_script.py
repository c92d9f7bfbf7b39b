"""deploy/kafka/broker with a Java that only tells what it was given."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from walle_stream.testing.broker.providers import broker_script

JAVA = """#!/bin/sh
case "$1" in
-version) echo 'openjdk version "VERSION"' >&2 ;;
*) echo "$@" ;;
esac
case "$*" in
*kafka.Kafka*) [ -z "$FAKE_PORT" ] || exec PYTHON -c "SERVER" "$@" ;;
esac
"""

SERVER = """
import os, signal, socket
server = socket.create_server(('127.0.0.1', int(os.environ['FAKE_PORT'])))
signal.pause()
"""


@pytest.fixture
def broker(tmp_path):
    """Run the script; its Java is a fake one, its jars are there."""
    (tmp_path / "bin").mkdir()
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "kafka-clients-0.jar").touch()

    def run(*arguments, version="17.0.1", **environ):
        java = tmp_path / "bin/java"
        text = JAVA.replace("VERSION", version).replace("SERVER", SERVER)
        text = text.replace("PYTHON", sys.executable)
        if not java.exists() or java.read_text() != text:  # it may be running
            java.write_text(text)
            java.chmod(0o755)
        own = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
        return subprocess.run(
            [broker_script(), *map(str, arguments)],
            env={
                **own,
                "PATH": f"{tmp_path}/bin:/usr/bin:/bin",
                "WALLE_KAFKA_JARS": str(jars),
                **environ,
            },
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )

    return run


def properties(folder):
    return dict(
        line.split("=", 1) for line in (folder / "server.properties").read_text().splitlines()
    )


def test_variables_become_properties_by_the_rule_of_the_public_image(broker, tmp_path):
    done = broker(
        "run",
        tmp_path / "b",
        KAFKA_LOG_RETENTION_HOURS="24",
        KAFKA_LISTENER_NAME_MUTUAL_SSL_CLIENT_AUTH="required",
        KAFKA_A__B___C="under_dash",
        KAFKA_SSL_KEYSTORE_LOCATION="back\\slash=and equals",
        KAFKA_NODE_ID="7",
    )
    assert done.returncode == 0, done.stderr
    found = properties(tmp_path / "b")
    assert found["log.retention.hours"] == "24"
    assert found["listener.name.mutual.ssl.client.auth"] == "required"
    assert found["a_b-c"] == "under_dash"
    assert found["ssl.keystore.location"] == "back\\\\slash=and equals"
    assert found["node.id"] == "7"
    assert found["process.roles"] == "broker,controller"
    assert found["log.dirs"] == f"{tmp_path}/b/data"


def test_options_of_java_are_no_properties(broker, tmp_path):
    done = broker("run", "b", KAFKA_HEAP_OPTS="-Xmx9m", KAFKA_OPTS="-Dx=y", KAFKA_VERSION="1")
    assert "-Xmx9m" in done.stdout
    assert "-Dx=y" in done.stdout
    assert not {"heap.opts", "opts", "version"} & properties(tmp_path / "b").keys()


def test_the_properties_are_their_owners_alone(broker, tmp_path):
    broker("run", "b")
    assert (tmp_path / "b/server.properties").stat().st_mode & 0o77 == 0


@pytest.mark.parametrize("arguments", [(), ("start",), ("sing", "b"), ("run", "a", "b"), ("tool",)])
def test_wrong_usage_is_told_and_exits_with_2(broker, arguments):
    done = broker(*arguments)
    assert done.returncode == 2
    assert "broker start FOLDER" in done.stderr


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_292", "?"])
@pytest.mark.parametrize(("command", "folder"), [("run", ["b"]), ("check", [])])
def test_an_old_java_is_refused_in_one_line(broker, version, command, folder):
    done = broker(command, *folder, version=version)
    assert done.returncode == 3
    assert "Java 17" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_missing_jars_without_maven_are_refused_in_one_line(broker, tmp_path):
    # a folder of links without mvn: a machine may have it beside the rest
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "cat", "cksum", "cut", "dirname", "env", "mkdir", "sed"):
        (tools / name).symlink_to(f"/usr/bin/{name}")
    done = broker("fetch", PATH=str(tools), WALLE_KAFKA_JARS=str(tmp_path / "none"))
    assert done.returncode == 3
    assert "install maven" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_stopping_what_does_not_run_says_so(broker, tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b/pid").write_text(f"{os.getpid()}\n")  # another process has the number now
    done = broker("stop", "b")
    assert done.returncode == 0
    assert "no broker runs" in done.stderr
    (tmp_path / "b/pid").write_text("4194305\n")  # no process ever has it
    assert broker("stop", "b").stderr.splitlines() == [f"broker: no broker runs in {tmp_path}/b"]
    assert broker("stop", "nowhere").returncode == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "", "[::]"])
def test_start_returns_when_the_first_listener_is_there_and_stop_ends_it(broker, tmp_path, host):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        settings = {
            "KAFKA_LISTENERS": f"X://{host}:{port},CONTROLLER://{host}:1",
            "FAKE_PORT": str(port),
        }
        taken = broker("start", "b", **settings)
    assert taken.returncode == 1
    assert f"something else listens at 127.0.0.1:{port}" in taken.stderr
    assert not (tmp_path / "b/pid").exists()
    started = broker("start", "b", **settings)
    assert started.returncode == 0, started.stderr
    assert f"listens at 127.0.0.1:{port}" in started.stderr
    assert "runs already" in broker("start", "b", **settings).stderr
    process = int((tmp_path / "b/pid").read_text())
    assert broker("stop", "b").returncode == 0
    assert not Path(f"/proc/{process}").exists()
    assert not (tmp_path / "b/pid").exists()


def test_a_server_that_ends_at_once_is_reported_with_its_log(broker, tmp_path):
    done = broker("start", "b", KAFKA_LISTENERS="PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2")
    assert done.returncode == 1
    assert f"{tmp_path}/b/log" in done.stderr
