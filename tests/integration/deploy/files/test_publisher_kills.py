"""A publisher killed at each of its steps: the repository is valid, the next command completes."""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.chaos]

# forks a child for each step, which kills itself there: one start of Python for all of them
SCRIPT = """
import os, shutil, signal, sys
from pathlib import Path
from tuf.api.exceptions import RepositoryError
from walle_deploy.trust.repository import NewTarget, TrustedRepository
from walle_deploy.device.files_metadata import VerifiedMetadata
from walle_stream.errors import RefNotFoundError, IntegrityError

base = Path(sys.argv[1])
os.fsync = lambda descriptor: None

class Files:  # what a file server does, without one
    def __init__(self, folder): self.folder = folder
    def chunks(self, url, limit, headers, offset=0):
        from tuf.api.exceptions import DownloadHTTPError
        path = self.folder / url.removeprefix("x:/")
        if not path.is_file(): raise DownloadHTTPError("no", 404)
        yield 0, path.read_bytes()

def seen(folder, root, names):
    shutil.rmtree(base / "device", ignore_errors=True)
    found = VerifiedMetadata(base / "device", root, Files(folder / "public"))
    return found.look_up("x:/metadata/", names)

def acts(repository):
    yield "add", lambda: repository.add([NewTarget(f"a/b/v{i}/x", b"%d" % i) for i in range(9)])
    yield "retire", lambda: repository.retire(["a/b/old/x"])
    yield "refresh", repository.refresh
    for role in ("timestamp", "snapshot", "targets", "packages", "root"):
        yield "rotate " + role, lambda role=role: repository.rotate(role)
        if role != "root":
            yield "lost " + role, lambda role=role: repository.rotate(role, is_lost=True)

start = base / "start"
repository = TrustedRepository.create(start, bin_bits=1)
repository.add([NewTarget("a/b/old/x", b"old"), NewTarget("a/b/kept/x", b"kept")])
root = repository.root()
total = windows = 0
for number in range(12):
    for step in range(1000):
        folder = base / "work"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(start, folder)
        child = os.fork()
        if not child:
            left = [step]
            original = os.replace
            def replace(*args, original=os.rename, **kwargs):
                left[0] -= 1
                if left[0] < 0: os.kill(os.getpid(), signal.SIGKILL)
                return original(*args, **kwargs)
            Path.replace = lambda self, to: replace(self, to)
            names = list(acts(TrustedRepository(folder)))
            if number < len(names): names[number][1]()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        names = list(acts(TrustedRepository(folder)))
        if number >= len(names): break
        name, act = names[number]
        try:
            seen(folder, root, ["a/b/kept/x"])
        except IntegrityError:
            # a lost key: nothing can be signed for the old and the new root
            assert name.startswith("lost"), name
            windows += 1
        repaired = TrustedRepository(folder)
        repaired.refresh()
        assert seen(folder, root, ["a/b/kept/x"]), name
        try:
            act()
        except RefNotFoundError:
            assert name == "retire"
        repaired.add([NewTarget("a/b/next/x", b"next")])
        seen(folder, root, ["a/b/next/x"])
        assert not repaired.status().expired
        total += os.WIFSIGNALED(status)
        if not os.WIFSIGNALED(status): break
print(total, windows)
"""


def test_a_publisher_killed_at_each_step(tmp_path):
    command = [sys.executable, "-W", "error", "-c", SCRIPT, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    kills, windows = map(int, done.stdout.split())
    assert kills > 40
    assert windows < 10
