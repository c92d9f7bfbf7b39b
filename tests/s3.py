"""A real S3 server (versitygw) for tests, and how it is away for a while."""

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUCKET = "walle-tests"
ENVIRON = {"AWS_ACCESS_KEY_ID": "walle", "AWS_SECRET_ACCESS_KEY": "a-test-s-own"}


def find_server():
    """Return the program, built where it is missing; None without it and Go."""
    found = subprocess.run([ROOT / ".ci/s3.sh"], capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else None


class S3Server:
    def __init__(self, program, folder):
        self._program, self._folder = program, folder
        (folder / BUCKET).mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self._port}"
        self.start()

    def start(self):
        roots = {
            "ROOT_ACCESS_KEY": ENVIRON["AWS_ACCESS_KEY_ID"],
            "ROOT_SECRET_KEY": ENVIRON["AWS_SECRET_ACCESS_KEY"],
        }
        command = [self._program, "--port", f"127.0.0.1:{self._port}", "posix", self._folder]
        with (self._folder.parent / "s3.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, env={**os.environ, **roots}, stdout=log, stderr=log
            )
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
            except OSError:
                assert self._process.poll() is None, "the S3 server ended"
                assert time.monotonic() < deadline, "the S3 server does not listen"
                time.sleep(0.02)
            else:
                return

    def stop(self):
        self._process.kill()
        self._process.wait()

    def pause(self):
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self._process.send_signal(signal.SIGCONT)

    def path(self, name):
        return self._folder / BUCKET / name

    def close(self):
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
