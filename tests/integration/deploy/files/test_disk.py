"""A device's disk: full at any write, shared by threads and processes, cleaned up, rotten."""

import errno
import os
import resource
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import msgspec
import pytest

from walle_deploy.device.files import DeviceIdentity, VerifiedFiles
from walle_deploy.model.pushes import PushedTask
from walle_stream.errors import (
    IntegrityError,
    ServiceUnreachableError,
    StoreFullError,
)
from walle_stream.vm.package.reader import read_package

pytestmark = pytest.mark.integration


@pytest.fixture
def device(world):
    made = world.device()
    world.pull(made, world.push("v1"))
    made.installed("d-1").install(world.push("v1"))
    world.publish("v2")
    return made


def test_a_full_disk_at_any_step_changes_nothing(world, device, blobs, monkeypatch):
    before, failed = blobs(device), 0
    for failing in range(100):
        left = [failing]

        def counted(original, left=left):
            def call(*args, **kwargs):
                left[0] -= 1
                if left[0] < 0:
                    raise OSError(errno.ENOSPC, "No space left on device")
                return original(*args, **kwargs)

            return call

        with monkeypatch.context() as patch:
            for module, name in (
                (os, "fsync"),
                (os, "replace"),
                (Path, "replace"),
                (Path, "mkdir"),
            ):
                patch.setattr(module, name, counted(getattr(module, name)))
            patch.setattr(tempfile, "NamedTemporaryFile", counted(tempfile.NamedTemporaryFile))
            try:
                world.pull(device, world.push("v2"))
            except StoreFullError:
                failed += 1
            else:
                break
        assert blobs(device) == before
    assert failed > 5
    assert device.installed("d-1").versions() == {"shop/ipv": "v1"}
    assert read_package(world.pull(device, world.push("v2"))[""]).manifest.task.version == "v2"


def test_a_file_that_may_not_grow(world, device, blobs):
    before = blobs(device)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # what is signed is known already: it is the file itself that does not fit
    device._metadata.look_up(f"{world.url}metadata/", [world.push("v2").files[0].target])
    resource.setrlimit(resource.RLIMIT_FSIZE, (600, hard))
    try:
        with pytest.raises(StoreFullError, match="full"):
            world.pull(device, world.push("v2"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert blobs(device) == before
    assert not list((device.folder / "blobs" / "incoming").iterdir())
    world.pull(device, world.push("v2"))


def test_a_record_that_does_not_fit_stays_as_it_was(world, device, monkeypatch):
    installed = device.installed("d-1")
    with monkeypatch.context() as patch:
        patch.setattr(
            Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(errno.EDQUOT, "quota"))
        )
        with pytest.raises(StoreFullError):
            installed.install(world.push("v2"))
    assert device.installed("d-1").versions() == installed.versions() == {"shop/ipv": "v1"}


def test_a_pull_continues_where_it_broke_off(world, device):
    whole, ranges = world.packages["v2"], []

    def breaks(handler):
        ranges.append(handler.headers.get("Range"))
        if len(ranges) > 1:
            world.server.evil = {}
            return handler.answer(whole)
        return handler.answer(whole[:400], len(whole))

    world.spoil(world.path("v2"), breaks)
    assert world.pull(device, world.push("v2"))
    assert ranges == [None, "bytes=400-"]


def test_what_came_serves_the_next_pull(world, device):
    whole = world.packages["v2"]
    world.spoil(world.path("v2"), lambda handler: handler.answer(whole[:400], len(whole)))
    once = world.device(attempts=1)
    with pytest.raises(ServiceUnreachableError, match="broke off"):
        world.pull(once, world.push("v2"))
    asked = []

    def rest(handler):
        asked.append(handler.headers.get("Range"))
        handler.answer(whole)

    world.spoil(world.path("v2"), rest)
    assert world.pull(once, world.push("v2"))
    assert asked == ["bytes=400-"]


def test_many_devices_of_a_process_get_a_file_once(world, device):
    errors = []

    def pull(number):
        try:
            world.pull(device, world.push("v2"), identity=DeviceIdentity(f"d-{number}"))
            device.installed(f"d-{number}").install(world.push("v2"))
        except Exception as error:  # noqa: BLE001 - whatever it is, the test tells
            errors.append(error)

    threads = [threading.Thread(target=pull, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert world.server.asked.count(f"/{world.path('v2')}") == 1
    assert device.collect(kept_ms=-1) == 0  # d-1 still has v1


PULLER = """
import sys, msgspec
from pathlib import Path
from walle_deploy.device.files import DeviceIdentity, VerifiedFiles
from walle_deploy.model.pushes import PushedTask
folder, root, push, url = sys.argv[1:]
files = VerifiedFiles(Path(folder), Path(root).read_bytes())
print("ready", flush=True)
sys.stdin.readline()
push = msgspec.json.decode(push, type=PushedTask)
print(files.pull(push, url, DeviceIdentity("d"))[""], flush=True)
"""


def test_two_processes_share_a_folder(world, device):
    root = next((world.server.folder / "metadata").glob("*.root.json"))
    push = msgspec.json.encode(world.push("v2")).decode()
    command = [sys.executable, "-c", PULLER, device.folder, root, push, f"{world.url}metadata"]
    pipe = subprocess.PIPE
    both = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(2)]
    for each in both:
        assert each.stdout.readline() == "ready\n"
    for each in both:
        each.stdin.write("\n")
        each.stdin.flush()
    ends = [each.communicate()[0] for each in both]
    assert ends[0] == ends[1] == f"{device.blobs.path(world.push('v2').files[0].sha256)}\n"
    assert world.server.asked.count(f"/{world.path('v2')}") == 1


def test_a_killed_device_goes_on_where_it_was(world, device):
    whole, half, asked = world.packages["v2"], threading.Event(), []

    def breaks(handler):
        asked.append(handler.headers.get("Range"))
        if len(asked) > 1:
            return handler.answer(whole)
        handler.answer(whole[:400], len(whole))
        half.set()
        return handler.rfile.read(1)  # until it is gone

    world.spoil(world.path("v2"), breaks)
    root = next((world.server.folder / "metadata").glob("*.root.json"))
    push = msgspec.json.encode(world.push("v2")).decode()
    command = [sys.executable, "-c", PULLER, device.folder, root, push, f"{world.url}metadata"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as running:
        running.stdin.write("\n")
        running.stdin.flush()
        half.wait()
        part = device.folder / "blobs" / "incoming" / world.push("v2").files[0].sha256
        while part.stat().st_size < 400:
            threading.Event().wait(0.001)
        running.kill()
    assert device.blobs.read(world.push("v1").files[0].sha256)
    assert world.pull(device, world.push("v2"))
    assert asked == [None, "bytes=400-"]


def test_what_killed_writers_left_is_removed(world, device):
    left = [
        device.folder / "devices" / ".0",
        *(
            world.folder / "repository" / name / ".0"
            for name in ("public/metadata", "public/targets")
        ),
    ]
    for path in left:
        path.write_bytes(b"half")
        os.utime(path, (1, 1))
    device.collect()
    world.repository.refresh()
    assert not any(path.exists() for path in left)


def test_what_nobody_names_is_removed_when_it_is_old(world, device, blobs):
    world.pull(device, world.push("v2"))
    old = world.push("v1").files[0].sha256
    assert device.collect() == 0  # just pulled
    assert device.collect(kept_ms=-1_000) == 1
    assert blobs(device) == {old}


def test_the_version_before_stays_until_the_next_one(world, device, blobs):
    installed = device.installed("d-1")
    world.pull(device, world.push("v2"))
    installed.install(world.push("v2"))
    assert device.collect(kept_ms=-1_000) == 0
    installed.install(world.push("v1"))  # it goes back, without a pull
    assert device.installed("d-1").versions() == {"shop/ipv": "v1"}
    assert device.collect(kept_ms=-1_000) == 0
    installed.install(PushedTask("shop/ipv", ""))
    assert device.collect(kept_ms=-1_000) == 1


def test_an_uninstalled_task_is_in_no_profile(device):
    installed = device.installed("d-1")
    installed.install(PushedTask("shop/ipv", ""))
    assert device.installed("d-1").versions() == {}


def test_a_record_that_cannot_be_read_removes_nothing(device, blobs):
    before = blobs(device)
    device.installed("d-1").path.write_bytes(b"{")
    with pytest.raises(IntegrityError, match="cannot be read"):
        device.collect(kept_ms=-1_000)
    assert blobs(device) == before


def test_a_rotten_file_is_found_and_gotten_again(world, device):
    sha256 = world.push("v1").files[0].sha256
    path = device.blobs.path(sha256)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(IntegrityError, match="not what was stored"):
        device.blobs.read(sha256)
    world.pull(device, world.push("v1"))
    assert device.blobs.read(sha256) == world.packages["v1"]
    path.unlink()
    with pytest.raises(IntegrityError, match="is missing"):
        device.blobs.read(sha256)


def test_metadata_files_that_rot_are_gotten_again(world, device):
    for path in (device.folder / "metadata").glob("*.json"):
        if not path.is_symlink():
            path.write_bytes(b"{")
    world.pull(VerifiedFiles(device.folder, world.repository.root()), world.push("v2"))


def test_what_was_verified_is_on_the_disk_before_it_is_believed(world, monkeypatch):
    # or after a power cut an older state would be believed
    synced = set()
    monkeypatch.setattr(os, "fsync", lambda fd: synced.add(Path(f"/proc/self/fd/{fd}").readlink()))
    device = world.device("careful")
    world.pull(device, world.push("v1"))
    folder = world.folder / "devices" / "careful" / "metadata"
    known = {path.resolve() for path in folder.iterdir() if path.suffix == ".json"}
    assert len(known) >= 4
    assert {folder, *known} <= synced
