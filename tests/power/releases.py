"""Power cuts of the platform: the release store with its audit log, and the signed repository."""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys

import msgspec
from tuf.api.exceptions import DownloadHTTPError

from tests.unit.deploy.hasty import hasty
from walle_deploy.device.files_blobs import BlobStore
from walle_deploy.device.files_installed import InstalledVersions
from walle_deploy.device.files_metadata import VerifiedMetadata
from walle_deploy.model.names import TaskRef
from walle_deploy.model.pushes import PushedTask
from walle_deploy.model.releases import VersionFiles
from walle_deploy.release.commands import ReleaseCommands
from walle_deploy.release.events import Tick
from walle_deploy.release.model import Release
from walle_deploy.release.verification import need_head, verify
from walle_deploy.store.opening import open_store
from walle_deploy.store.rows import AuditHead
from walle_deploy.trust.layout import TARGETS, blob_path
from walle_deploy.trust.publishing import ExclusiveFile, publish_version
from walle_deploy.trust.repository import TrustedRepository
from walle_stream.errors import ConflictError, IntegrityError, WalleError
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.package.build import build_package
from walle_stream.vm.package.reader import PackagedTask

LIMITS = RunLimits(1_000, 10, 5, 2_000, 2, 0, 9_999)
VERSIONS = ("v1", "v2", "v3")


class ReleaseStore:
    """Two processes change one store: each audit entry that was acknowledged stays."""

    def prepare(self, material):
        """Nothing is needed."""

    def run(self, root, material, promise):
        is_second = "WALLE_POWER_SECOND" in os.environ
        other = None
        if not is_second:
            other = subprocess.Popen(
                [sys.executable, *sys.orig_argv[1:]],
                env={**os.environ, "WALLE_POWER_SECOND": "1"},
            )
        store = open_store(str(root / "releases.db"))
        commands = ReleaseCommands(store, "power")
        for change in _changes(
            "shop/other" if is_second else "shop/ipv", "b" if is_second else "a"
        ):
            change(commands)
            with store.reading() as reading:
                head = reading.audit_head()
            promise(f"{head.number} {head.hash}")
        store.close()
        assert other is None or other.wait() == 0

    def check(self, root, material, promises):
        heads = [AuditHead(int(number), text) for number, text in map(str.split, promises)]
        try:
            store = open_store(str(root / "releases.db"))
            with store.reading() as reading:
                verify(reading)
                for head in heads:
                    need_head(reading.audit(), head)
            ReleaseCommands(store, "power").publish("shop/ipv", "later", VersionFiles(()))
            store.close()
        except WalleError as error:
            return f"{type(error).__name__}: {error}"
        return None


def _changes(task, name):
    definition = {
        "apiVersion": "walle/v1",
        "kind": "Release",
        "metadata": {"name": name},
        "spec": hasty({"task": task, "version": "v2", "gray": [{"percent": 5}]}),
    }

    def go(commands):
        commands.apply(name, lambda look, _: Tick(look.now_ms(), "go", 5))

    for version in VERSIONS:
        yield lambda commands, version=version: commands.publish(task, version, VersionFiles(()))
    yield lambda commands: commands.adopt(task, "v1")
    yield lambda commands: commands.create(Release.model_validate(definition), supersede=True)
    yield go
    yield lambda commands: commands.pause(name)
    yield lambda commands: commands.resume(name)
    yield go
    yield lambda commands: commands.roll_back(name)


class Repository:
    """Versions are published and keys rotated: the repository is the old or the new one."""

    def prepare(self, material):
        for version in (*VERSIONS, "later"):
            task = PackagedTask("ipv", version, 1, "t.py", (("a",),), None, {}, LIMITS)
            script = f"def run(ctx, page):\n    ctx.emit({{'v': {version!r}}})\n"
            (material / version).write_bytes(build_package(task, script))

    def run(self, root, material, promise):
        repository = TrustedRepository.create(root / "repository", bin_bits=2)
        (material / "root.json").write_bytes(repository.root())
        promise("create")
        for version in VERSIONS:
            found = self._publish(repository, material, version)
            promise(f"{version} {found.shared[0].sha256}")
            repository.rotate("targets" if version == "v1" else "timestamp")
            promise("rotate")

    def check(self, root, material, promises):
        try:
            return self._look(root / "repository", material, promises)
        except WalleError as error:
            return f"{type(error).__name__}: {error}"

    def _look(self, folder, material, promises):
        promised = dict(each.split() for each in promises if " " in each)
        if promises:
            repository = TrustedRepository(folder)
            first = (material / "root.json").read_bytes()
        else:
            try:
                repository = TrustedRepository.create(folder, bin_bits=2)
            except ConflictError:  # it was made, and is as good as a new one
                repository = TrustedRepository(folder)
            first = repository.root()
        wrong = self._signed(folder, first, promised)
        if wrong:
            return wrong
        # whoever published is not sure of the last one, and does it again; then goes on
        again = {
            v: self._publish(repository, material, v).shared[0].sha256 for v in (*VERSIONS, "later")
        }
        return self._signed(folder, first, again)

    def _signed(self, folder, first, versions):
        names = {v: f"shop/ipv/{v}/ipv-{v}.walle" for v in versions}
        device = VerifiedMetadata(
            folder.with_name(f"device-{len(versions)}"), first, _Files(folder)
        )
        signed = device.look_up("x:/metadata/", names.values())
        for version, sha256 in versions.items():
            content = (folder / TARGETS / blob_path(sha256)).read_bytes()
            found = {
                signed[names[version]].hashes["sha256"],
                hashlib.sha256(content).hexdigest(),
            }
            if found != {sha256}:
                return f"{version}: published as {sha256}, found {found}"
        return None

    def _publish(self, repository, material, version):
        own = [ExclusiveFile(f"d-{n}", "seen", f"{version} {n}".encode()) for n in range(3)]
        return publish_version(repository, TaskRef("shop", "ipv", version), material / version, own)


class DeviceFiles:
    """A device pulls versions: none is older than what was seen, files and records stay."""

    def prepare(self, material):
        Repository().prepare(material)
        repository = TrustedRepository.create(material / "repository", bin_bits=2)
        (material / "root.json").write_bytes(repository.root())
        for version in VERSIONS:
            ref = TaskRef("shop", "ipv", version)
            files = publish_version(repository, ref, material / version)
            task = PushedTask("shop/ipv", version, "r1", files.shared)
            (material / f"{version}.json").write_bytes(msgspec.json.encode(task))
            shutil.copytree(
                material / "repository" / "public", material / f"at-{version}" / "public"
            )

    def run(self, root, material, promise):
        device = root / "device"
        blobs, records = BlobStore(device / "blobs"), InstalledVersions(device / "devices", "d")
        for version in VERSIONS:
            task = self._task(material, version)
            self._look_up(device, material, version)
            promise(f"seen {version}")
            [file] = task.files
            content = (material / version).read_bytes()
            blobs.store(
                file.sha256, file.size_bytes, lambda into, _, content=content: into.write(content)
            )
            promise(f"stored {file.sha256}")
            records.install(task)
            promise(f"installed {version}")

    def check(self, root, material, promises):
        try:
            return self._look(root / "device", material, [each.split() for each in promises])
        except WalleError as error:
            return f"{type(error).__name__}: {error}"

    def _look(self, device, material, promises):
        seen = [version for what, version in promises if what == "seen"]
        if len(seen) > 1:
            with contextlib.suppress(IntegrityError):
                self._look_up(device, material, seen[-2])
                return f"{seen[-1]} was seen, and the older state of {seen[-2]} is believed"
        self._look_up(device, material, VERSIONS[-1])
        blobs = BlobStore(device / "blobs")
        for what, sha256 in promises:
            if what == "stored":
                blobs.read(sha256)
        had = [version for what, version in promises if what == "installed"]
        has = InstalledVersions(device / "devices", "d").versions().get("shop/ipv", "")
        if had and has < had[-1]:
            return f"{had[-1]} was installed, {has or 'nothing'} is there"
        return None

    def _task(self, material, version):
        return msgspec.json.decode((material / f"{version}.json").read_bytes(), type=PushedTask)

    def _look_up(self, device, material, version):
        first = (material / "root.json").read_bytes()
        files = _Files(material / f"at-{version}")
        metadata = VerifiedMetadata(device / "metadata", first, files)
        metadata.look_up("x:/metadata/", [self._task(material, version).files[0].target])


class _Files:
    """The files of a file server, without a server."""

    def __init__(self, repository):
        self._folder = repository / "public"

    def chunks(self, url, limit, headers, offset=0):
        path = self._folder / url.removeprefix("x:/")
        if not path.is_file():
            raise DownloadHTTPError("no", 404)
        yield 0, path.read_bytes()
