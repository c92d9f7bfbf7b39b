import errno

import pytest

from walle_deploy.device import pulling as module
from walle_deploy.device.files_blobs import KEPT_MS
from walle_deploy.device.pulling import PulledFiles
from walle_deploy.model.profile import DeviceProfile
from walle_deploy.model.pushes import PushedFile, PushedTask
from walle_stream.errors import IntegrityError, ServiceUnreachableError, StoreError, StoreFullError
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.package.build import build_package
from walle_stream.vm.package.reader import PackagedTask

TASK = PushedTask(
    "shop/a",
    "v1",
    files=(PushedFile("t", "u", "1" * 64, 1), PushedFile("e", "u", "2" * 64, 1, resource="own")),
)

LIMITS = RunLimits(1_000, 10, 5, 2_000, 2, 0, 9_999)
PACKAGE = build_package(
    PackagedTask("a", "v1", 1, "t.py", (("a",),), None, {}, LIMITS),
    "def run(ctx, page):\n    pass\n",
)


class Files:
    """``VerifiedFiles`` as far as it is asked, and its blobs and records."""

    def __init__(self, folder):
        self.folder, self.blobs = folder, self
        self.error, self.identities, self.collected, self.recorded = None, [], 0, []

    def pull(self, task, _metadata_url, identity, _service_ms):
        if self.error:
            raise self.error
        self.identities.append(identity)
        return {file.resource: self.folder for file in task.files}

    def read(self, sha256):
        return PACKAGE if sha256 == "1" * 64 else sha256.encode()

    def installed(self, _device):
        return self

    def install(self, task):
        if self.error:
            raise self.error
        self.recorded.append(task)

    def collect(self, kept_ms=KEPT_MS):
        if self.error:
            raise self.error
        self.collected += 1
        self.kept_ms = kept_ms


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def test_files_come_by_resource_for_the_device_and_its_user(files):
    pulled = PulledFiles(files, {"d-1": "secret"})
    found = pulled.pull(DeviceProfile("d-1", user="ann"), TASK, "m/", None)
    assert found == {"": PACKAGE, "own": b"2" * 64}
    pulled.pull(DeviceProfile("d-2"), TASK, "m/", None)
    told = [(each.device, each.user, each.secret) for each in files.identities]
    assert told == [("d-1", "ann", "secret"), ("d-2", "", "")]


@pytest.mark.parametrize(
    ("raised", "expected", "text"),
    [
        (OSError(errno.ENOSPC, "No space"), StoreFullError, "full"),
        (OSError(errno.EROFS, "Read-only file system"), StoreError, "Read-only file system"),
        (OSError(errno.EIO, "Input/output error"), StoreError, "Input/output error"),
        (ServiceUnreachableError("away"), ServiceUnreachableError, "away"),
    ],
)
def test_errors_of_the_disk_are_told_in_our_words(files, raised, expected, text):
    pulled, files.error = PulledFiles(files), raised
    for call in (
        lambda: pulled.pull(DeviceProfile("d-1"), TASK, "m/", None),
        lambda: pulled.record("d-1", TASK),
    ):
        with pytest.raises(expected, match=text) as caught:
            call()
        assert type(caught.value) is expected


def test_files_that_nothing_names_are_looked_for_once_an_hour(files, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module, "monotonic_ms", lambda: now[0])
    pulled = PulledFiles(files)
    for at_ms, collected in ((0, 1), (KEPT_MS - 1, 1), (KEPT_MS, 2), (KEPT_MS + 1, 2)):
        now[0] = at_ms
        pulled.record("d-1", TASK)
        assert files.collected == collected
    assert files.recorded == [TASK] * 4


def test_on_a_full_disk_what_no_record_names_goes_at_once(files):
    pulled = PulledFiles(files)
    pulled.clear()
    assert (files.collected, files.kept_ms) == (1, 0)
    for files.error in (OSError(errno.EIO, "no"), IntegrityError("no record"), StoreError("no")):
        pulled.clear()  # it is tried again with the next refusal
    assert files.collected == 1


def test_a_package_that_was_signed_as_another_version_is_not_used(files):
    for name, version in (("shop/a", "v2"), ("shop/b", "v1")):
        pushed = PushedTask(name, version, files=TASK.files)
        with pytest.raises(
            IntegrityError, match="its package holds a@v1: it was signed as another"
        ):
            PulledFiles(files).pull(DeviceProfile("d-1"), pushed, "m/", None)
