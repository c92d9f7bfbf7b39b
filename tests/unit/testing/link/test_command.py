"""The command for people: what it says, what it obeys, how it ends."""

import re
import socket
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-m", "walle_stream.testing.link"]


@pytest.fixture
def command(target):
    host, port = target.address
    process = subprocess.Popen(
        [*COMMAND, "--to", f"{host}:{port}", "--delay", "1ms", "--rate", "1MiB"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def tell(process, line):
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return process.stdout.readline()


def test_the_command_forwards_and_obeys(command, target, tools):
    _, read = tools
    said = command.stdout.readline()
    port = int(re.search(r"127\.0\.0\.1:(\d+) -> ", said)[1])
    with socket.create_connection(("127.0.0.1", port), 30.0) as client:
        client.sendall(b"hello")
        assert read(target.peer(), 5) == b"hello"
        assert tell(command, "cut up").startswith("link: 1 of 1 connections, up 5 bytes delivered")
        target.peer().sendall(b"heard")
        assert read(client, 5) == b"heard"
        assert "connections" in tell(command, "heal")
        assert "connections" in tell(command, "delay 2ms")
        assert "expected a duration" in tell(command, "jitter soon")
        assert "expected stall|cut|heal" in tell(command, "cut sideways")
        assert "connections" in tell(command, "reset")
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    command.stdin.write("quit\n")
    command.stdin.flush()
    assert command.wait(30) == 0


def test_the_end_of_the_input_ends_it(command):
    command.stdout.readline()
    command.stdin.close()
    assert command.wait(30) == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--to", "nowhere"], "expected HOST:PORT, found 'nowhere'"),
        (["--to", "h:70000"], "expected HOST:PORT"),
        (["--to", "h:1", "--delay", "soon"], "expected a duration like 250ms"),
        (["--to", "h:1", "--rate", "much"], "rate: invalid"),
        ([], "required: --to"),
    ],
)
def test_wrong_usage_is_one_line_and_2(arguments, text):
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert text in done.stderr


def test_a_port_that_is_taken_is_one_line_and_2(target):
    host, port = target.address
    command = [*COMMAND, "--to", "h:1", "--listen", f"{host}:{port}"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"link: a link cannot listen at {host}:{port}")
    assert done.stderr.count("\n") == 1
