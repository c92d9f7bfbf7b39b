"""Packages that are signed and hostile all the same: what a publisher's thief would make.

They are pulled and verified as any other; reading refuses them before anything is unpacked.
"""

import hashlib
import io
import json
import stat
import zipfile

import pytest

from walle_deploy.model.pushes import PushedFile, PushedTask
from walle_deploy.trust.repository import NewTarget
from walle_stream.errors import PackageError
from walle_stream.vm.package.reader import MANIFEST, SEAL, read_package

pytestmark = pytest.mark.integration


def packed(members, method=zipfile.ZIP_DEFLATED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for info, content in members:
            archive.writestr(info, content, method)
        archive.comment = SEAL + bytes(64)
    return sealed(stream.getvalue()[:-64])


def sealed(data):
    return data + hashlib.sha256(data).hexdigest().encode()


def members_of(package):
    with zipfile.ZipFile(io.BytesIO(package)) as archive:
        return [(info, archive.read(info)) for info in archive.infolist()]


def with_resource(package, name, content, mode=stat.S_IFREG | 0o644, size=None):
    (first, text), *rest = members_of(package)
    manifest = json.loads(text)
    manifest["resources"][name] = len(content) if size is None else size
    info = zipfile.ZipInfo(f"resources/{name}")
    info.external_attr = mode << 16
    return packed([(first, json.dumps(manifest)), *rest, (info, content)])


def lying_bomb(package):
    """10 MB of zeros that say that they are 10 bytes."""
    data = with_resource(package, "bomb", bytes(10_000_000), size=10)
    whole = (10_000_000).to_bytes(4, "little")
    return sealed(data[:-64].replace(whole, (10).to_bytes(4, "little")))


def crowd(package):
    return packed([*members_of(package), *((f"x{i}", b"") for i in range(1_200))])


def vast(package):
    # a directory that says 4 GB for one member
    data = with_resource(package, "big", bytes(1_000_000), size=0xFFFFFFF0)
    return sealed(
        data[:-64].replace((1_000_000).to_bytes(4, "little"), (0xFFFFFFF0).to_bytes(4, "little"))
    )


HOSTILE = {
    "a member that climbs out": (
        lambda p: packed([*members_of(p), ("../../etc/cron.d/x", b"x")]),
        "is not one of its members",
    ),
    "an absolute member": (
        lambda p: packed([*members_of(p), ("/etc/passwd", b"x")]),
        "is not one of its members",
    ),
    "a declared resource that climbs out": (
        lambda p: with_resource(p, "../../x", b"x"),
        "a resource cannot be named",
    ),
    "a declared resource with a drive": (
        lambda p: with_resource(p, "C:\\x", b"x"),
        "a resource cannot be named",
    ),
    "a link": (
        lambda p: with_resource(p, "x", b"/etc/passwd", stat.S_IFLNK | 0o777),
        "is not a plain file",
    ),
    "a device node": (
        lambda p: with_resource(p, "x", b"", stat.S_IFCHR | 0o666),
        "is not a plain file",
    ),
    "a bomb that hides its size": (lying_bomb, "cannot be inflated|expected|is a broken zip"),
    "a bomb that says its size": (vast, "at most 268435456 bytes inflated"),
    "more members than any": (crowd, "at most 1100 members|has a directory of"),
    "a member twice": (lambda p: packed([*members_of(p), *members_of(p)[1:2]]), "each once"),
    "a package in a package in a package": (
        lambda p: packed([(MANIFEST, p), ("x", packed([("y", p)]))]),
        "is not a manifest",
    ),
    "bytes behind its end": (lambda p: p + b"#!", "ends without its seal"),
    "no zip": (lambda p: b"\x7fELF" + p, "is not a task package"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_signed_package_that_is_hostile(world, name):
    make, reason = HOSTILE[name]
    data = make(world.packages["v1"])
    target = "shop/ipv/v9/ipv-9.walle"
    custom = {"task": "shop/ipv", "version": "v9"}
    world.repository.add([NewTarget(target, data, custom)])
    digest = hashlib.sha256(data).hexdigest()
    url = f"{world.url}targets/{digest[:2]}/{digest}"
    push = PushedTask("shop/ipv", "v9", "r", (PushedFile(target, url, digest, len(data)),))
    device = world.device()
    path = world.pull(device, push)[""]
    before = sorted(world.folder.rglob("*"))
    for given in (path, device.blobs.read(digest)):
        with pytest.raises(PackageError, match=reason):
            read_package(given)
    assert sorted(world.folder.rglob("*")) == before
