"""Some power cuts; `make chaos-power` does 1,000. Mutants show that a sync left out is seen."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.power import ext4
from tests.power.campaign import differences, memory_folder
from tests.power.disk import Disk
from tests.power.record import Op, compiler, record

REPOSITORY = Path(__file__).parents[2]
CANNOT = "there is no C compiler here: no power is cut"
needs_compiler = pytest.mark.skipif(compiler() is None, reason=CANNOT)

CALLS = """
import ctypes, mmap, os, shutil, subprocess, sys, threading
from pathlib import Path

os.chdir(sys.argv[1])
outside = Path(sys.argv[1]).parent / "outside"
libc = ctypes.CDLL(None, use_errno=True)

# descriptors: at the end, twice, in a child, by vectors, at offsets
opened = os.open("appended", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
twice = os.dup(opened)
os.write(opened, b"one")
os.write(twice, b"two")
os.writev(opened, [b"three", b"", b"four"])
os.close(opened)
if not (child := os.fork()):
    os.write(twice, b"child")
    os._exit(0)
os.waitpid(child, 0)
subprocess.run([sys.executable, "-c", "open('spawned', 'w').write('far')"], check=True)
placed = os.open("placed", os.O_RDWR | os.O_CREAT)
os.pwrite(placed, b"at nine", 9)
os.pwritev(placed, [b"a", b"b"], 2)
os.lseek(placed, 4, os.SEEK_SET)
os.write(placed, b"here")
os.ftruncate(placed, 12)
os.posix_fallocate(placed, 0, 5_000)
os.truncate("placed", 4_500)
libc.fallocate(placed, 1, 0, 9_000)  # keeps the size
os.fsync(placed)
os.fdatasync(placed)
Path("placed").open("wb").close()
libc.close(libc.creat(b"created", 0o600))
file = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)(("fopen", libc))(b"stdio", b"w")
libc.fputs(b"past us", ctypes.c_void_p(file))
libc.fclose(ctypes.c_void_p(file))
memory = os.open("mapped", os.O_RDWR | os.O_CREAT)
os.ftruncate(memory, 4_096)
mmap.mmap(memory, 4_096)[:5] = b"hello"

# names: by folder descriptor, across folders, in and out
os.makedirs("a/b")
here = os.open("a", os.O_RDONLY)
os.close(os.open("kept", os.O_WRONLY | os.O_CREAT, dir_fd=here))
os.mkdir("c", dir_fd=here)
os.rename("a/kept", "a/b/moved")
os.link("a/b/moved", "linked")
os.rename("b/moved", "../again", src_dir_fd=here)
os.symlink("../again", "a/b/symbolic")
Path("gone").write_bytes(b"x")
os.unlink("gone")
os.rmdir("a/c")
shutil.copy("placed", "copied")
Path("replaced").write_bytes(b"old")
Path("new").write_bytes(b"new")
os.replace("new", "replaced")
Path("leaves").write_bytes(b"y")
os.rename("leaves", outside)
os.fsync(here)

# one order over threads
def write(number):
    for index in range(50):
        with open("shared", "ab", buffering=0) as shared:
            shared.write(b"%d-%d " % (number, index))
threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
[each.start() for each in threads]
[each.join() for each in threads]
"""


@needs_compiler
def test_the_log_has_every_change():
    with memory_folder() as folder:
        root = folder / "root"
        root.mkdir()
        done, ops = record(
            [sys.executable, "-c", CALLS, root], root, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert differences(ops, root) == []
        counts = {kind: sum(op.kind == kind for op in ops) for kind in "SMO"}
        assert counts == {"S": 3, "M": 1, "O": 1}
        assert len({op.pid for op in ops}) == 3


@needs_compiler
def test_a_sync_that_is_left_out_is_not_logged():
    with memory_folder() as folder:
        root = folder / "root"
        root.mkdir()
        code = "import os; [os.fsync(os.open(name, os.O_RDWR | os.O_CREAT)) for name in ('one', 'two')]"
        _, ops = record([sys.executable, "-c", code], root, "t*|x", cwd=root)
        inodes = {op.path: op.inode for op in ops if op.kind == "C"}
        assert [op.inode for op in ops if op.kind == "S"] == [inodes["one"]]


ROOT, FILE, FOLDER, OTHER = range(1, 5)


def op(kind, inode, path="", data=b"", offset=0):
    return Op(kind, 1, inode, offset, path, data)


MADE = [
    op("R", ROOT),
    op("C", FILE, "f"),
    op("W", FILE, data=b"abc"),
    op("S", FILE),
    op("W", FILE, data=b"def", offset=3),
]


@pytest.mark.parametrize(
    ("names", "ops", "expected"),
    [
        ("strict", MADE, {}),
        ("ext4", MADE, {"f": b"abc"}),
        ("strict", [*MADE, op("S", ROOT)], {"f": b"abc"}),
        ("strict", [*MADE, op("S", FILE), op("S", ROOT)], {"f": b"abcdef"}),
        ("strict", [*MADE, op("S", ROOT), op("T", FILE)], {"f": b"abc"}),
        ("strict", [*MADE, op("S", ROOT), op("T", FILE), op("S", FILE)], {"f": b""}),
        ("strict", [*MADE, op("S", ROOT), op("N", FILE, "f", b"g")], {"f": b"abc"}),
        ("strict", [*MADE, op("S", ROOT), op("N", FILE, "f", b"g"), op("S", ROOT)], {"g": b"abc"}),
        ("strict", [*MADE, op("S", ROOT), op("U", FILE, "f")], {"f": b"abc"}),
        ("strict", [*MADE, op("D", FOLDER, "d"), op("S", ROOT), op("N", FILE, "f", b"d/g")], {"d": None, "f": b"abc"}),
        ("strict", [*MADE, op("D", FOLDER, "d"), op("S", ROOT), op("N", FILE, "f", b"d/g"), op("S", FOLDER)], {"d": None, "d/g": b"abc"}),
        ("strict", [*MADE, op("L", FILE, "f", b"l"), op("S", ROOT)], {"f": b"abc", "l": b"abc"}),
        ("ext4", [*MADE, op("C", OTHER, "o"), op("S", OTHER)], {"f": b"abc", "o": b""}),
    ],
)  # fmt: skip
def test_what_a_cut_leaves_of_what_was_not_synced(names, ops, expected, tmp_path):
    disk = Disk(names)
    for each in ops:
        disk.apply(each)
    disk.build(tmp_path / "d", "none", random.Random(1))
    assert contents(tmp_path / "d") == expected


def test_unsynced_bytes_are_left_from_the_start_or_by_pages(tmp_path):
    old, new = b"o" * 10_000, b"n" * 20_000
    disk = Disk("strict")
    for each in (
        op("R", ROOT),
        op("C", FILE, "f"),
        op("W", FILE, data=old),
        op("S", FILE),
        op("S", ROOT),
    ):
        disk.apply(each)
    disk.apply(op("W", FILE, data=new))
    found = {"prefix": set(), "real": set()}
    for data, seen in found.items():
        for seed in range(40):
            disk.build(tmp_path / f"{data}{seed}", data, random.Random(seed))
            seen.add((tmp_path / f"{data}{seed}" / "f").read_bytes())
    for content in found["prefix"]:
        assert content == (new[: content.count(b"n")] + old[content.count(b"n") :])
    for content in found["real"]:
        pages = [content[at : at + 4_096] for at in range(0, len(content), 4_096)]
        assert all(
            len(set(page)) == 1 or 8_192 <= at * 4_096 < 12_288 for at, page in enumerate(pages)
        )
        assert len(content) in {10_000, 12_288, 16_384, 20_000}
    assert min(map(len, found.values())) > 4


def contents(folder):
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
    }


def campaign(folder, *arguments):
    command = [sys.executable, "-m", "tests.power", "--json", folder / "report.json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert (folder / "report.json").exists(), done.stderr
    report = json.loads((folder / "report.json").read_bytes())
    return done, {part["target"]: part for part in report["parts"]}


@pytest.mark.chaos
@needs_compiler
def test_cuts_lose_nothing_that_was_promised(tmp_path):
    done, parts = campaign(tmp_path, "--cuts", "25", "--seed", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sum(part["kills"] for part in parts.values()) == 25
    assert all(part["kills"] for part in parts.values())


@needs_compiler
@pytest.mark.parametrize(
    ("workload", "skip"),
    [
        ("pipeline-true", "data/partitions/*.log"),
        ("release-store", "releases.db*"),
        ("repository", "repository/public/metadata"),
    ],
)
def test_a_sync_left_out_is_caught(workload, skip, tmp_path):
    done, parts = campaign(tmp_path, "--workload", f"{workload}=30", "--skip", skip, "--seed", "4")
    assert done.returncode == 1, done.stdout + done.stderr
    assert parts[workload]["mismatches"]


@needs_compiler
def test_a_campaign_that_is_killed_goes_on(tmp_path):
    arguments = ["--workload", "release-store=12", "--folder", tmp_path / "kept"]
    command = [sys.executable, "-m", "tests.power", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY) as killed:
        assert "wrong" in killed.stderr.readline()  # its first cuts are done
        killed.kill()
    _, parts = campaign(tmp_path, *arguments)
    assert json.loads((tmp_path / "report.json").read_bytes())["resumes"] == 1
    assert (parts["release-store"]["kills"], parts["release-store"]["lives"]) == (12, 2)


@pytest.mark.slow
@pytest.mark.skipif(bool(ext4.missing()), reason=str(ext4.missing()))
def test_file_systems_that_are_shut_down_lose_nothing_that_was_promised(tmp_path):
    done, parts = campaign(tmp_path, "--ext4", "30", "--seed", "5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sum(part["kills"] for part in parts.values()) == 30
