"""The cross-check: ext4 on a loop device, shut down without its journal while a workload runs.

It does not rely on the replayer's model of file systems: the kernel decides what is left.
A cut costs seconds and shows one state of many, so this is the long form.
"""

import fcntl
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import time
from contextlib import contextmanager, suppress

from tests.power.campaign import Cut, command_of, in_child, prepared
from tests.power.workloads import WORKLOADS

_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
_WITHOUT_JOURNAL = struct.pack("I", 2)
_IMAGE_BYTES = 192 * 1024 * 1024
_WAIT_S = 300.0
_LOOK_S = 0.0005


def missing():
    """Say why it cannot run here; None where it can."""
    if (
        os.geteuid() != 0
        or not shutil.which("mkfs.ext4")
        or not pathlib.Path("/dev/loop-control").exists()
    ):
        return "no file system is shut down: that needs root, mkfs.ext4 and loop devices"
    return None


class RealDisk:
    """A workload that runs on a real file system; see `Recording`."""

    def __init__(self, name, folder):
        """Count the promises of a run that nobody cuts."""
        self.name, self.folder = name, folder
        self._material = prepared(name, folder)
        with self._running("whole") as (process, promises, _):
            assert process.wait(_WAIT_S) == 0
            self._promised = len(_lines(promises))

    def draw(self, seed):
        """Return a cut: behind how many promises it comes."""
        return Cut(random.Random(seed).randrange(self._promised + 1), "real", "ext4", seed)

    def describe(self, cut):
        """Say where a cut comes."""
        return f"behind promise {cut.count} of {self._promised}, {cut.names} {cut.data}"

    def build(self, cut, folder):
        """Nothing is kept: the same cut leaves another state."""

    def check(self, cut):
        """Run, shut the file system down, mount it again and return what is wrong, or None."""
        name = f"cut-{cut.seed.rpartition('/')[2]}"
        delay_s = random.Random(cut.seed).random() * 0.02
        try:
            with self._running(name) as (process, promises, mount):
                _await(lambda: len(_lines(promises)) >= cut.count or process.poll() is not None)
                time.sleep(delay_s)
                promised = _lines(promises)  # before the shutdown: later ones may be of nothing
                _shut_down(mount.path)
                with suppress(ProcessLookupError):  # the shutdown may have ended it
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait(_WAIT_S)
                mount.again()
                root, material = mount.path / "root", self.folder / name / "material"
                root.mkdir(exist_ok=True)
                return in_child(lambda: WORKLOADS[self.name].check(root, material, promised))
        finally:
            shutil.rmtree(self.folder / name, ignore_errors=True)

    @contextmanager
    def _running(self, name):
        folder = self.folder / name
        material = folder / "material"
        shutil.copytree(self._material, material)
        with _Mount(folder) as mount:
            root, promises = mount.path / "root", folder / "promises"
            root.mkdir()
            os.sync()
            command, environ = command_of(self.name, root, material, promises)
            with (folder / "said").open("wb") as said:
                process = subprocess.Popen(
                    command,
                    env={**os.environ, **environ},
                    stdout=said,
                    stderr=said,
                    start_new_session=True,
                )
            try:
                yield process, promises, mount
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait(_WAIT_S)


class _Mount:
    def __init__(self, folder):
        self._image, self.path = folder / "image", folder / "mount"

    def __enter__(self):
        with self._image.open("wb") as file:
            file.truncate(_IMAGE_BYTES)
        self.path.mkdir()
        _run("mkfs.ext4", "-q", self._image)
        _run("mount", "-o", "loop", self._image, self.path)
        return self

    def again(self):
        """Unmount and mount: the journal is replayed."""
        self._unmount()
        _run("mount", "-o", "loop", self._image, self.path)

    def __exit__(self, *_):
        self._unmount()

    def _unmount(self):
        # children of a killed process let it go a little later
        _await(
            lambda: (
                subprocess.run(["umount", self.path], capture_output=True, check=False).returncode
                == 0
            )
        )


def _shut_down(path):
    folder = os.open(path, os.O_RDONLY)
    fcntl.ioctl(folder, _SHUTDOWN, _WITHOUT_JOURNAL)
    os.close(folder)


def _run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{command[0]}: {done.stderr.strip()}")


def _lines(path):
    # a last line that is only half there is no promise yet
    return path.read_text().split("\n")[:-1] if path.exists() else []


def _await(condition):
    deadline = time.monotonic() + _WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited for {_WAIT_S} s")
        time.sleep(_LOOK_S)
