"""Runs a command under the shim and reads the log of what it did to files."""

import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

_SOURCE = Path(__file__).with_name("shim.c")
_HEAD = struct.Struct("<c3xIQQII")

TMPFS = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - a sync is free there


class Op(NamedTuple):
    """A change of a file, or of a name."""

    kind: str
    """R root, C created, D folder, N renamed, L linked, Y symbolic link, U unlinked, W written,
    T truncated, S synced, M mapped to be written, O opened with stdio."""
    pid: int
    inode: int
    offset: int
    path: str
    data: bytes

    @property
    def text(self):
        """The second path."""
        return self.data.decode()


def compiler():
    """Return the C compiler, or None."""
    return shutil.which("cc") or shutil.which("gcc")


def shim(cache=None):
    """Compile the shim, once for each content of its source, and return its path."""
    content = _SOURCE.read_bytes()
    folder = cache or Path(tempfile.gettempdir(), f"walle-power-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    made = folder / f"shim-{hashlib.sha256(content).hexdigest()[:16]}.so"
    if not made.exists():
        part = made.with_suffix(f".{os.getpid()}")
        flags = ["-O2", "-Wall", "-Wextra", "-Wno-nonnull-compare", "-shared", "-fPIC"]
        subprocess.run([compiler(), *flags, "-o", part, _SOURCE, "-ldl", "-lpthread"], check=True)
        part.rename(made)
    return made


def record(command, root, skip="", environ=None, **options):
    """Run a command and return its exit code and the changes below a folder that it made.

    Args:
        command: What to run.
        root: The folder; is there, and empty.
        skip: Patterns of paths, divided by `|`, whose syncs are left out.
        environ: More of its environment.
        options: Of `subprocess.run`.
    """
    log = root.with_name(f"{root.name}.log")
    log.unlink(missing_ok=True)
    own = {"LD_PRELOAD": str(shim()), "POWER_ROOT": str(root), "POWER_LOG": str(log)}
    if skip:
        own["POWER_SKIP"] = skip
    done = subprocess.run(
        command, check=False, env={**os.environ, **own, **(environ or {})}, **options
    )
    return done, list(read(log))


def read(log):
    """Iterate over a log's changes."""
    data, at = log.read_bytes(), 0
    while at < len(data):
        kind, pid, inode, offset, path_bytes, data_bytes = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        path = data[at : at + path_bytes].decode()
        at += path_bytes
        yield Op(kind.decode(), pid, inode, offset, path, data[at : at + data_bytes])
        at += data_bytes
