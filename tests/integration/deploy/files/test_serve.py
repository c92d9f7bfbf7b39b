"""``walle repository serve`` as a process of its own."""

import json
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration

# the entry point, and signals as the command itself has them
SCRIPT = """
import argparse, signal, sys
from walle_deploy.cli.repository import add
signal.signal(signal.SIGTERM, signal.default_int_handler)
parser = argparse.ArgumentParser()
add(parser.add_subparsers())
options = parser.parse_args(["repository", *sys.argv[1:]])
sys.exit(options.run(options))
"""


def test_it_serves_until_a_signal_and_keeps_the_timestamp_fresh(world):
    folder = world.folder / "repository"
    before = world.repository.status().roles[3].version
    command = [sys.executable, "-c", SCRIPT, "serve", folder, "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        world.url = json.loads(running.stdout.readline())["url"]
        world.pull(world.device(), world.push("v1"))
        running.send_signal(signal.SIGTERM)
        assert running.wait() == 0
    assert world.repository.status().roles[3].version > before
