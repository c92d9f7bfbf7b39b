"""Publishing versions: what never changes, what is refused, two operators at once."""

import errno
import fcntl
import json
import os
import threading
from pathlib import Path

import pytest

from walle_deploy.device import files_metadata
from walle_deploy.model.names import TaskRef
from walle_deploy.trust import layout
from walle_deploy.trust.publishing import ExclusiveFile, publish_version
from walle_deploy.trust.repository import NewTarget, TrustedRepository
from walle_stream.errors import (
    ConflictError,
    DeployError,
    IntegrityError,
    PackageError,
    RefNotFoundError,
    StoreFullError,
)
from walle_stream.vm.package.build import build_package
from walle_stream.vm.package.reader import CURRENT_TAG, read_package

pytestmark = pytest.mark.integration

REF = TaskRef("shop", "ipv", "v1")
DAY_MS = 86_400_000


def test_publishing_again_changes_nothing(world, packages):
    before, files = world.saved(), world.files["v1"]
    world.publish("v1")
    assert (world.saved(), world.files["v1"]) == (before, files)


def test_a_version_names_the_interpreters_that_it_has_code_for(world):
    assert world.files["v1"].interpreters == (CURRENT_TAG,)


def test_a_version_never_changes(world, packages):
    with pytest.raises(ConflictError, match="a version never changes, publish a new one"):
        publish_version(world.repository, REF, packages["v1"], [ExclusiveFile("d", "x", b"x")])
    second = TaskRef("shop", "ipv", "v2")
    publish_version(world.repository, second, packages["v2"], [ExclusiveFile("d", "x", b"x")])
    for files in ([], [ExclusiveFile("d", "x", b"y")], [ExclusiveFile("e", "x", b"x")]):
        with pytest.raises(ConflictError, match="is already signed with other content"):
            publish_version(world.repository, second, packages["v2"], files)


def test_one_owner_has_one_file_of_a_name(world, packages):
    files = [ExclusiveFile("d", "x", b"1"), ExclusiveFile("d", "x", b"2")]
    with pytest.raises(ConflictError, match="'d' has two files 'x'"):
        publish_version(world.repository, TaskRef("shop", "ipv", "v2"), packages["v2"], files)


def test_what_is_no_package_of_this_task_is_not_published(world, packages, tmp_path):
    with pytest.raises(RefNotFoundError, match="holds version 'v1' of the task 'ipv', not shop/ot"):
        publish_version(world.repository, TaskRef("shop", "other", "v1"), packages["v1"])
    # two packages of one version would have two names, and both be signed
    with pytest.raises(RefNotFoundError, match=r"holds version 'v2' .*, not shop/ipv@v1"):
        publish_version(world.repository, REF, packages["v2"])
    assert world.repository.status().targets == 1
    with pytest.raises(RefNotFoundError, match="not shop/ipv: publish it under its own name"):
        publish_version(world.repository, TaskRef("shop", "ipv"), packages["v1"])
    with pytest.raises(PackageError, match="is not a task package"):
        publish_version(world.repository, REF, b"x")
    missing = [ExclusiveFile("d", "x", tmp_path / "missing")]
    with pytest.raises(RefNotFoundError, match="No such file"):
        publish_version(world.repository, TaskRef("shop", "ipv", "v2"), packages["v2"], missing)


@pytest.mark.parametrize("name", ["", "/a", "a//b", "../a", ".a", "a/.b", "a b", "ä", "a" * 501])
def test_a_target_has_a_plain_name(world, name):
    with pytest.raises(RefNotFoundError, match="cannot be a target's name"):
        world.repository.add([NewTarget(name, b"")])


def test_what_was_retired_does_not_come_again(world):
    retired = world.push("v1").files[0].target
    other = build_package(
        read_package(world.packages["v1"]).manifest.task, "def run(ctx, page):\n    pass\n"
    )
    repository = TrustedRepository(world.repository.folder)
    assert not repository.is_retired(retired)
    world.repository.retire([retired])
    assert repository.is_retired(retired)
    for package in (world.packages["v1"], other):
        with pytest.raises(ConflictError, match="was retired and cannot be published again"):
            publish_version(world.repository, TaskRef("shop", "ipv", "v1"), package)
    assert world.repository.find(retired) is None
    world.publish("v2")
    assert not repository.is_retired(world.push("v2").files[0].target)


def test_what_is_retired_cannot_be_retired_again(world):
    world.repository.retire([world.push("v1").files[0].target])
    with pytest.raises(RefNotFoundError, match="there is no target"):
        world.repository.retire([world.push("v1").files[0].target])


def test_a_publisher_builds_on_nothing_that_is_not_signed(world):
    # somebody who can write into the folder must not get their entry signed with the next one
    folder = world.server.folder / "metadata"
    for pattern in (
        "1.root.json",
        "*.snapshot.json",
        "*.targets.json",
        "*.packages-*",
        "timestamp.json",
    ):
        path = max(folder.glob(pattern))
        good = path.read_bytes()
        given = json.loads(good)
        given["signed"]["x-more"] = 1
        path.write_text(json.dumps(given))
        with pytest.raises(IntegrityError, match="is not what was signed"):
            world.publish("v2") or world.repository.add(
                [NewTarget(f"n/{i}", b"") for i in range(9)]
            )
        path.write_bytes(good)
    world.publish("v2")


def test_two_operators_at_once(world):
    errors = []

    def add(operator):
        repository = TrustedRepository(world.folder / "repository")
        try:
            for number in range(5):
                repository.add([NewTarget(f"{operator}/{number}", b"x")])
        except Exception as error:  # noqa: BLE001 - whatever it is, the test tells
            errors.append(error)

    threads = [threading.Thread(target=add, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert all(world.repository.find(f"{o}/{n}") for o in "ab" for n in range(5))


def test_a_repository_that_stays_locked_is_said_so(world, monkeypatch):
    folder = world.folder / "repository"
    with (folder / "LOCK").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with (
            pytest.raises(ConflictError, match="another command is writing"),
            layout.sole_writer(folder, 0),
        ):
            pass


def test_a_repository_is_made_once(world):
    with pytest.raises(ConflictError, match="a repository already exists here"):
        TrustedRepository.create(world.folder / "repository")
    with pytest.raises(RefNotFoundError, match="walle repository init"):
        TrustedRepository(world.folder / "nowhere").status()


def test_a_making_that_was_cut_off_is_made_anew(world):
    folder = world.folder / "cut"
    first = TrustedRepository.create(folder, bin_bits=2)
    (folder / "public" / "metadata" / "timestamp.json").unlink()
    second = TrustedRepository.create(folder, bin_bits=2)
    assert second.root() is not None
    assert len(list((folder / "keys").glob("*.pem"))) == 5
    assert first.status().expired == ()


def test_what_lost_its_timestamp_is_not_made_anew(world):
    status, timestamp = world.repository.status(), world.repository.metadata / "timestamp.json"
    kept = timestamp.read_bytes()
    timestamp.unlink()
    before = world.saved()
    for use in (world.repository.status, lambda: TrustedRepository.create(world.repository.folder)):
        with pytest.raises(IntegrityError, match=r"timestamp: .*it is missing.*from a copy"):
            use()
    assert world.saved() == before
    timestamp.write_bytes(kept)
    assert world.repository.status() == status


def test_keys_are_for_their_owner_alone(world):
    keys = world.folder / "repository" / "keys"
    assert keys.stat().st_mode & 0o777 == 0o700
    for path in keys.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
        path.chmod(0o640)
    with pytest.raises(DeployError, match="others may read this key: chmod 600"):
        world.publish("v2")
    for path in keys.iterdir():
        path.chmod(0o600)
        path.write_bytes(b"no key")
    with pytest.raises(DeployError, match="is not a private key"):
        world.publish("v2")


def test_what_expires_is_signed_anew_in_time(world):
    start = world.clock()
    assert world.repository.refresh() == ["timestamp"]
    for days in range(1, 400, 3):
        world.now_ms = start + days * DAY_MS
        world.repository.refresh()
        assert world.repository.status().expired == ()
    assert world.repository.status().roles[0].version == 2
    world.pull(world.device(), world.push("v1"))


def test_without_its_keys_a_root_is_not_signed_anew_and_all_else_is(world):
    for role in ("root", "targets"):
        for path in (world.folder / "repository" / "keys").glob(f"{role}-*"):
            path.unlink()
    world.now_ms = world.clock() + 300 * DAY_MS
    assert world.repository.refresh()[-2:] == ["snapshot", "timestamp"]
    world.now_ms += 100 * DAY_MS
    world.repository.refresh()
    assert world.repository.status().expired == ("root", "targets")


def test_what_nobody_reads_any_more_is_swept(world):
    folder = world.server.folder / "metadata"
    for _ in range(3):
        world.repository.add([NewTarget(f"n/{len(list(folder.iterdir()))}", b"")])
    count = len(list(folder.glob("*.json")))
    world.repository.refresh()
    assert len(list(folder.glob("*.json"))) == count
    for path in folder.glob("*.json"):
        os.utime(path, (1, 1))
    world.repository.refresh()
    assert len(list(folder.glob("*.json"))) < count
    assert (folder / "1.root.json").exists()
    world.pull(world.device(), world.push("v1"))


def test_a_full_disk_at_the_publisher_changes_nothing(world, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    for steps in range(20):
        left = [steps]

        def replace(self, to, original=Path.replace, left=left):
            left[0] -= 1
            return full() if left[0] < 0 else original(self, to)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", replace)
            is_full = False
            try:
                world.publish("v2")
            except StoreFullError:
                is_full = True
        world.pull(world.device(f"d{steps}"), world.push("v1"))
        if not is_full:
            break
    assert steps > 3
    world.pull(world.device(), world.push("v2"))


def test_a_device_whose_clock_is_years_off(world, monkeypatch):
    now = world.clock()
    ahead, behind = world.device("ahead"), world.device("behind")
    monkeypatch.setattr(files_metadata, "wall_ms", lambda: now - 9 * 365 * DAY_MS)
    world.pull(behind, world.push("v1"), service_ms=now)
    monkeypatch.setattr(files_metadata, "wall_ms", lambda: now + 9 * 365 * DAY_MS)
    for service_ms in (None, now):  # by who says so a clock that is right could be turned back
        with pytest.raises(IntegrityError, match="this device's clock is wrong"):
            world.pull(ahead, world.push("v1"), service_ms=service_ms)


def test_nobody_who_answers_for_service_and_files_freezes_a_device(world, monkeypatch):
    frozen, then = world.saved(), world.clock()
    world.repository.retire(["shop/ipv/v1/ipv-v1.walle"])
    world.restore(frozen)
    monkeypatch.setattr(files_metadata, "wall_ms", lambda: then + 30 * DAY_MS)
    with pytest.raises(IntegrityError, match="sends an old state"):
        world.pull(world.device("new"), world.push("v1"), service_ms=then)


def test_time_does_not_go_back_behind_what_was_seen(world, monkeypatch):
    start, saved = world.clock(), world.saved()
    seen = world.device()
    world.now_ms = start + 5 * DAY_MS
    world.repository.refresh()
    world.pull(seen, world.push("v1"))
    # the clock is set back, the service lies, and what was seen lies there alone
    monkeypatch.setattr(files_metadata, "wall_ms", lambda: start)
    assert seen._metadata._floor_ms() == start + 5 * DAY_MS
    world.restore(saved)
    seen._metadata._last = None
    with pytest.raises(IntegrityError, match="older than what was seen"):
        world.pull(seen, world.push("v1"), service_ms=start)


def test_a_version_number_is_signed_with_one_content_alone(world, monkeypatch):
    # what is signed and cut off may have been copied: its number is not given again
    folder = world.server.folder / "metadata"
    with monkeypatch.context() as patch:
        patch.setattr(world.repository._signing, "_finish", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            world.publish("v2")
    cut = {path.name: path.read_bytes() for path in folder.iterdir()}
    world.now_ms = world.clock() + 3 * DAY_MS
    world.repository.refresh()
    world.repository.add([NewTarget(f"n/{i}", b"") for i in range(9)])
    left = [name for name in cut if (folder / name).exists() and name != "timestamp.json"]
    assert len(left) > 3
    assert all((folder / name).read_bytes() == cut[name] for name in left)
    assert world.repository.find("shop/ipv/v2/ipv-v2.walle") is None


def test_another_bin_in_a_bins_place_is_seen(world):
    folder = world.server.folder / "metadata"
    world.repository.add([NewTarget(f"n/{i}", b"") for i in range(20)])
    first, second, *_ = sorted(folder.glob("1.packages-*.json"))
    first.write_bytes(second.read_bytes())
    with pytest.raises(IntegrityError, match=r"is another bin|not the snapshot's"):
        world.repository.status()
