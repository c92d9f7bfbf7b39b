"""Cuts the power of workloads, again and again, and looks at what is left.

A workload is recorded once for some dozens of cuts. Each cut is a child that is forked here, with
everything imported: it rebuilds the disk, checks it and ends. So this process opens no database
and makes no VM.
"""

import json
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.power.disk import DATA, NAMES, Disk
from tests.power.record import TMPFS, record
from tests.power.workloads import PROMISES, WORKLOADS

RECORDED_CUTS = 40
"""Cuts of one recording."""

_CHECK_S = 120.0


class Cut(NamedTuple):
    """A power cut."""

    workload: str
    number: int
    names: str
    data: str


class Recording:
    """What one run of a workload did to its folder."""

    def __init__(self, name, folder, skip=""):
        """Run it.

        Args:
            name: The workload's.
            folder: Where its files go; it is not there yet.
            skip: Patterns of paths whose syncs are left out.
        """
        self.name, self.folder = name, folder
        self.root, self.material = folder / "root", folder / "material"
        for each in (folder, self.root, self.material):
            each.mkdir()
        prepared = in_child(lambda: WORKLOADS[name].prepare(self.material))
        assert prepared is None, prepared
        command = [
            sys.executable,
            "-P",
            "-m",
            "tests.power.workloads",
            name,
            self.root,
            self.material,
            self.root / PROMISES,
        ]
        environ = {"PYTHONHASHSEED": "0", "PYTHONPATH": str(Path(__file__).parents[2])}
        done, self.ops = record(command, self.root, skip, environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def draw(self, chance):
        """Return behind how many changes a cut comes: every other time right behind a promise."""
        promised = [
            index
            for index, op in enumerate(self.ops, 1)
            if op.inode == self._promises and op.kind == "W"
        ]
        if promised and chance.random() < 0.5:
            return chance.choice(promised)
        return chance.randrange(len(self.ops) + 1)

    def disk(self, names, count):
        """Return the disk behind some changes, and what was promised until then."""
        disk, promised = Disk(names), b""
        for op in self.ops[:count]:
            disk.apply(op)
            if op.kind == "W" and op.inode == self._promises:
                promised += op.data
        return disk, promised.decode().splitlines()

    def check(self, cut, count, chance):
        """Cut behind some changes and return what is wrong then, or None."""
        root = self.folder / "cut"

        def look():
            disk, promises = self.disk(cut.names, count)
            disk.build(root, cut.data, chance)
            return WORKLOADS[self.name].check(root, self.material, promises)

        try:
            return in_child(look)
        finally:
            shutil.rmtree(root, ignore_errors=True)

    @property
    def _promises(self):
        return next((op.inode for op in self.ops if op.kind == "C" and op.path == PROMISES), None)


def in_child(work):
    """Return what a function returns in a forked child: text or None; what goes wrong there is text."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        _answer(work, writer)
    os.close(writer)
    answer, deadline = b"", time.monotonic() + _CHECK_S
    while select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(reader, 65_536)
        if not part:
            break
        answer += part
    else:
        os.kill(child, signal.SIGKILL)
    os.close(reader)
    _, status = os.waitpid(child, 0)
    if not answer:
        return f"the check ended with status {os.waitstatus_to_exitcode(status)} and said nothing"
    return json.loads(answer)


def _answer(work, writer):
    try:
        answer = work()
    except BaseException:  # noqa: BLE001 - it crosses to the parent as text
        answer = traceback.format_exc()[-1_500:]
    os.write(writer, json.dumps(answer).encode())
    # no thread is waited for: a check's process may go at any time
    os._exit(0)


@contextmanager
def memory_folder():
    """Make a folder in memory, where a sync costs nothing."""
    folder = Path(tempfile.mkdtemp(prefix="walle-power-", dir=TMPFS))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Campaign:
    """Cuts over workloads, in turns; its state is what was done."""

    def __init__(self, names, wanted, seed):
        self.names, self.wanted, self.seed = list(names), wanted, seed
        self.done = 0
        self.cuts = {name: {} for name in self.names}
        """By workload: how many there were, by mode."""
        self.failures = []
        self.seconds = dict.fromkeys(self.names, 0.0)

    def run(self, on_cut):
        """Cut until there were enough; `on_cut` is called behind each."""
        share = -(-self.wanted // len(self.names))
        with memory_folder() as folder:
            while self.done < self.wanted:
                name = self.names[self.done // share]
                recording = Recording(name, folder / f"{self.done}")
                end = min(self.done + RECORDED_CUTS, (self.done // share + 1) * share, self.wanted)
                while self.done < end:
                    self._cut(recording)
                    on_cut(self)
                shutil.rmtree(recording.folder)

    def _cut(self, recording):
        chance = random.Random(f"{self.seed}/{self.done}")
        cut = Cut(recording.name, self.done, chance.choice(NAMES), chance.choice(DATA))
        count = recording.draw(chance)
        began = time.monotonic()
        wrong = recording.check(cut, count, chance)
        mode = f"{cut.names} {cut.data}"
        counts = self.cuts[cut.workload]
        counts[mode] = counts.get(mode, 0) + 1
        self.seconds[cut.workload] += time.monotonic() - began
        self.done += 1
        if wrong:
            place = f"{cut.workload}, cut {cut.number}, behind {describe(recording, count)}, {mode}"
            self.failures.append((place, wrong))


def describe(recording, count):
    """Say behind which change a cut comes."""
    paths = {}
    for op in recording.ops[:count]:
        if op.kind in "CDN":
            paths[op.inode] = op.text if op.kind == "N" else op.path
    last = recording.ops[count - 1] if count else None
    what = f" ({last.kind} {paths.get(last.inode, '')})" if last else ""
    return f"change {count} of {len(recording.ops)}{what}"
