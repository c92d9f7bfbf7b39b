"""Cuts the power of workloads, again and again, and looks at what is left.

A workload is recorded once for some dozens of cuts. Each cut is a child that is forked here, with
everything imported: it rebuilds the disk, checks it and ends. So this process opens no database
and makes no VM.
"""

import hashlib
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
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.power.disk import DATA, NAMES, Disk
from tests.power.record import TMPFS, record
from tests.power.workloads import PROMISES, WORKLOADS
from walle_deploy.trust.layout import put_file
from walle_stream.errors import CampaignError
from walle_stream.testing.chaos.report import (
    FaultReport,
    Mismatch,
    PartReport,
    these_versions,
    this_machine,
)

RECORDED_CUTS = 40
"""Cuts of one recording."""

MISMATCHES_MAX = 5
"""Number of mismatches after which a workload ends."""

WEIGHTS = {
    "pipeline-true": 160,
    "pipeline-interval": 120,
    "pipeline-false": 120,
    "calls-true": 80,
    "calls-false": 60,
    "packages": 100,
    "data-directory": 60,
    "release-store": 100,
    "repository": 120,
    "device-files": 80,
}
"""How many of 1,000 cuts each workload gets."""

PROOF = "all that was promised is present, nothing is doubled, and every loss was reported"

_CHECK_S = 600.0  # a hang, on the busiest of machines


class Cut(NamedTuple):
    """A power cut."""

    count: int
    """Behind how many changes of the log."""
    names: str
    data: str
    seed: str
    """Of what is left to chance at the cut."""


class Recording:
    """What one run of a workload did to its folder."""

    def __init__(self, name, folder, skip=""):
        """Run it.

        Args:
            name: The workload's.
            folder: Where its files go; it is not there yet.
            skip: Patterns of paths whose syncs are left out.
        """
        self.name, self.folder, self.material = name, folder, prepared(name, folder)
        self.root = folder / "root"
        self.root.mkdir()
        command, environ = command_of(name, self.root, self.material, self.root / PROMISES)
        done, self.ops = record(command, self.root, skip, environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        made = [op.inode for op in self.ops if op.kind == "C" and op.path == PROMISES]
        self._promises = made[0]
        assert not (passed := differences(self.ops, self.root)), f"went past the shim: {passed}"

    def draw(self, seed):
        """Return a cut: every other one comes right behind a promise."""
        chance = random.Random(seed)
        promised = [index for index, op in enumerate(self.ops, 1) if self._is_promise(op)]
        count = max(1, chance.randrange(len(self.ops) + 1))  # the first one is the folder itself
        if promised and chance.random() < 0.5:
            count = chance.choice(promised)
        return Cut(count, chance.choice(NAMES), chance.choice(DATA), seed)

    def build(self, cut, folder):
        """Write down what the cut leaves, and return what was promised before."""
        disk = Disk(cut.names)
        for op in self.ops[: cut.count]:
            disk.apply(op)
        disk.build(folder, cut.data, random.Random(cut.seed))
        promised = [op.data for op in self.ops[: cut.count] if self._is_promise(op)]
        return b"".join(promised).decode().splitlines()

    def check(self, cut):
        """Return what is wrong behind a cut, or None."""
        root = self.folder / "cut"

        def look():
            promises = self.build(cut, root)
            return WORKLOADS[self.name].check(root, self.material, promises)

        try:
            return in_child(look)
        finally:
            shutil.rmtree(root, ignore_errors=True)

    def describe(self, cut):
        """Say where a cut comes."""
        paths = {}
        for op in self.ops[: cut.count]:
            if op.kind in "CDN":
                paths[op.inode] = op.text if op.kind == "N" else op.path
        last = self.ops[cut.count - 1] if cut.count else None
        what = f"{last.kind} {paths.get(last.inode, '')}" if last else "nothing"
        return f"behind change {cut.count} of {len(self.ops)} ({what}), {cut.names} {cut.data}"

    def _is_promise(self, op):
        return op.kind == "W" and op.inode == self._promises


def prepared(name, folder):
    """Make a folder, and in it what a workload needs beside its root; return where that is."""
    material = folder / "material"
    material.mkdir(parents=True)
    failure = in_child(lambda: WORKLOADS[name].prepare(material))
    assert failure is None, failure
    return material


def command_of(name, root, material, promises):
    """Return the command that runs a workload, and what its environment needs."""
    command = [sys.executable, "-P", "-m", "tests.power.workloads", name, root, material, promises]
    return command, {"PYTHONHASHSEED": "0", "PYTHONPATH": str(Path(__file__).parents[2])}


def differences(ops, root):
    """Return the paths where all of a log is not the folder that it was recorded of."""
    disk, copy = Disk("strict"), root.with_name("all")
    for op in ops:
        disk.apply(op)
    unknown = {path.relative_to(copy) for path in disk.build_all(copy)}
    mine, real = _contents(copy), _contents(root)
    shutil.rmtree(copy)
    return sorted(
        path for path in {*mine, *real} - unknown if mine.get(path, 0) != real.get(path, 0)
    )


def _contents(folder):
    found = {}
    for path in folder.rglob("*"):
        what = (
            path.readlink() if path.is_symlink() else None if path.is_dir() else path.read_bytes()
        )
        found[path.relative_to(folder)] = what
    return found


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
def memory_folder(owner=None):
    """Make a folder in memory, where a sync costs nothing; what a dead owner left there goes first."""
    if owner is None:
        folder = Path(tempfile.mkdtemp(prefix="walle-power-", dir=TMPFS))
    else:
        digest = hashlib.sha256(str(owner.resolve()).encode()).hexdigest()[:16]
        folder = Path(TMPFS or tempfile.gettempdir(), f"walle-power-{digest}")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def plan(total):
    """Return how many of all cuts each workload gets."""
    shares = {name: total * weight // sum(WEIGHTS.values()) for name, weight in WEIGHTS.items()}
    shares[next(iter(shares))] += total - sum(shares.values())
    return {name: share for name, share in shares.items() if share}


class Campaign:
    """Cuts over workloads, one workload behind the other."""

    def __init__(self, wanted, seed, folder=None, make=Recording):
        """Begin, or go on where a campaign in the folder was stopped.

        Args:
            wanted: Cuts by workload.
            seed: Every choice follows from it and from the cut's number in its workload.
            folder: For progress, and for the disks of cuts behind which something was wrong.
            make: Makes what is cut, of a workload's name and a folder.
        """
        self._folder, self._make = folder, make
        self._file = folder and folder / "campaign.json"
        parts = [PartReport(target=name, wanted=count) for name, count in wanted.items()]
        self.report = FaultReport(
            pipeline="power cuts", seed=seed, date=f"{datetime.now(UTC):%Y-%m-%d}", parts=parts,
            machine=this_machine(), versions=these_versions(), proof=PROOF,
        )  # fmt: skip
        if self._file and self._file.exists():
            found = msgspec.json.decode(self._file.read_bytes(), type=FaultReport)
            if (found.seed, {part.target: part.wanted for part in found.parts}) != (seed, wanted):
                raise CampaignError(f"{self._file} is of another campaign: give another --folder")
            self.report = msgspec.structs.replace(found, resumes=found.resumes + 1)

    def run(self, on_cut):
        """Cut until there were enough; `on_cut` gets the report behind each, and behind recordings."""
        with memory_folder(self._folder) as folder:
            for part in self.report.parts:
                while part.kills < part.wanted and len(part.mismatches) < MISMATCHES_MAX:
                    self._run(part, folder / f"{part.target}-{part.lives}", on_cut)
        if self._file:
            self._file.unlink(missing_ok=True)
        return self.report

    def _run(self, part, folder, on_cut):
        began = time.monotonic()
        recording = self._make(part.target, folder)
        part.lives += 1
        end = min(part.wanted, part.kills + RECORDED_CUTS)
        while part.kills < end and len(part.mismatches) < MISMATCHES_MAX:
            cut = recording.draw(f"{self.report.seed}/{part.kills}")
            if wrong := recording.check(cut):
                part.mismatches.append(
                    Mismatch(f"cut {part.kills}: {recording.describe(cut)}", wrong)
                )
                if self._folder:
                    recording.build(cut, self._folder / f"{part.target}-{part.kills}")
            part.count("power", f"{cut.names} {cut.data}")
            part.wall_s, began = round(part.wall_s + time.monotonic() - began, 3), time.monotonic()
            if self._file:
                put_file(self._file, self.report.to_json())
            on_cut(self.report)
        shutil.rmtree(folder)
