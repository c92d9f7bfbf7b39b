"""Attacks on what a device pulls: each is refused with its reason, and the old version stays."""

import contextlib
import gzip
import socket
import threading

import msgspec
import pytest

from walle_deploy.device.files import DeviceIdentity
from walle_deploy.trust.repository import NewTarget, TrustedRepository
from walle_stream.errors import IntegrityError, ServiceUnreachableError
from walle_stream.vm.package.reader import read_package

pytestmark = pytest.mark.integration

DAY_MS = 86_400_000


@pytest.fixture
def device(world):
    """One that has v1; v2 is published."""
    made = world.device()
    world.pull(made, world.push("v1"))
    made.installed("d-1").install(world.push("v1"))
    world.publish("v2")
    return made


@pytest.fixture
def refused(world, device, blobs):
    def check(error, reason, push=None, **more):
        before = blobs(device)
        with pytest.raises(error, match=reason) as caught:
            world.pull(device, push or world.push("v2"), **more)
        assert "\n" not in str(caught.value)
        assert blobs(device) == before
        read_package(device.blobs.path(world.push("v1").files[0].sha256))
        assert device.installed("d-1").versions() == {"shop/ipv": "v1"}

    return check


def test_a_good_version_comes_with_its_bytes(world, device):
    path = world.pull(device, world.push("v2"))[""]
    assert read_package(path).manifest.task.version == "v2"


def test_a_tampered_file(world, refused):
    data = bytearray(world.packages["v2"])
    data[100] ^= 1
    world.serve(world.path("v2"), bytes(data))
    refused(IntegrityError, "not the one that was signed")


def test_a_truncated_file(world, refused):
    world.serve(world.path("v2"), world.packages["v2"][:-9])
    refused(IntegrityError, "not the one that was signed")


def test_a_file_that_breaks_off_each_time(world, refused):
    whole = world.packages["v2"]
    world.spoil(world.path("v2"), lambda handler: handler.answer(whole[:99], len(whole)))
    refused(ServiceUnreachableError, "broke off|does not answer|not the one")


def test_another_versions_file_under_this_name(world, refused):
    world.serve(world.path("v2"), world.packages["v1"])
    refused(IntegrityError, "not the one that was signed|more than")


def test_another_versions_hash_under_this_name(world, refused):
    old = world.push("v1").files[0]
    push = world.push("v2", sha256=old.sha256, size_bytes=old.size_bytes, url=old.url)
    refused(IntegrityError, "signed under this name", push)


def test_another_versions_signed_file_as_this_version(world, refused):
    push = msgspec.structs.replace(world.push("v1"), version="v2")
    refused(IntegrityError, "was signed for shop/ipv@v1", push)


def test_a_name_that_nobody_signed(world, refused):
    refused(IntegrityError, "no signed metadata names it", world.push("v2", target="shop/ipv/v3/x"))


def test_a_version_without_its_package(world, refused):
    refused(IntegrityError, "without its package", world.push("v2", resource="x"))


def test_a_version_that_was_retired(world, refused):
    world.repository.retire([world.push("v2").files[0].target])
    refused(IntegrityError, "no signed metadata names it")


def test_expired_metadata(world, refused):
    refused(IntegrityError, "expired", service_ms=world.clock() + 2 * DAY_MS)


def test_older_metadata_than_was_seen(world, device, refused):
    saved = world.saved()
    world.repository.refresh()
    world.pull(world.device(), world.push("v1"))  # another process of this machine
    world.restore(saved)
    refused(IntegrityError, "older than what was seen")


def test_an_old_snapshot_under_a_new_timestamp(world, refused):
    folder = world.server.folder / "metadata"
    newest = max(folder.glob("*.snapshot.json"), key=lambda path: int(path.name.split(".")[0]))
    world.serve(newest.name, (folder / "1.snapshot.json").read_bytes())
    refused(IntegrityError, "not what was signed")


def test_an_old_bin_under_a_new_snapshot(world, device, refused):
    folder, target = world.server.folder / "metadata", world.push("v2").files[0].target
    bin_ = next(path.name for path in folder.glob("*.packages-*") if target in path.read_text())
    version, _, name = bin_.partition(".")
    for number in range(99):  # until one is signed by the same bin
        world.repository.add([NewTarget(f"shop/other/v{number}/x", b"%d" % number)])
        if newer := list(folder.glob(f"{int(version) + 1}.{name}")):
            break
    world.serve(newer[0].name, (folder / bin_).read_bytes())
    refused(IntegrityError, "not what was signed")


def test_another_bin_of_the_same_version(world, device, refused):
    # one key signs all bins: another one is believed, but does not name this file
    folder = world.server.folder / "metadata"
    bins = {path.name: path.read_bytes() for path in folder.glob("1.packages-*.json")}
    mine = next(name for name, data in bins.items() if b"ipv-v2.walle" in data)
    world.serve(mine, next(data for name, data in bins.items() if name != mine))
    refused(IntegrityError, "no signed metadata names it")
    world.server.evil = {}
    assert world.pull(device, world.push("v2"))  # it hides this one for no moment longer


def test_a_state_that_is_shown_for_ever_runs_out(world, device):
    # v3 is hidden by serving what was true: nothing signs that anew
    push = world.push("v2")
    saved = world.saved()
    world.repository.refresh()
    world.restore(saved)
    assert world.pull(world.device("new"), push, service_ms=world.clock() + DAY_MS // 2)
    with pytest.raises(IntegrityError, match="expired, judged by"):
        world.pull(world.device("new"), push, service_ms=world.clock() + 2 * DAY_MS)


def test_metadata_of_somebody_else(world, refused, tmp_path):
    other = TrustedRepository.create(tmp_path / "other", bin_bits=2)
    world.server.folder = other.folder / "public"
    refused(IntegrityError, "not what was signed")


def test_metadata_without_end(world, refused):
    world.spoil("timestamp.json", lambda handler: handler.answer(b" " * 40_000))
    refused(IntegrityError, "more than metadata may have")


def test_a_file_without_end(world, refused):
    def endless(handler):
        handler.send_response(200)
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b"x" * 65_536)
        except OSError:
            pass

    world.spoil(world.path("v2"), endless)
    refused(IntegrityError, "more than the")


def test_a_small_file_that_inflates_to_a_large_one(world, refused):
    def bomb(handler):
        data = gzip.compress(b" " * 20_000_000)
        handler.send_response(200)
        handler.send_header("Content-Encoding", "gzip")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        with contextlib.suppress(OSError):
            handler.wfile.write(data)

    world.spoil("timestamp.json", bomb)
    refused(IntegrityError, "more than")


def trickle(at_once, data):
    def behave(handler):
        stop = handler.server.stop
        try:
            handler.wfile.write(at_once)
            for byte in data:
                handler.wfile.write(bytes([byte]))
                if stop.wait(0.02):
                    return
        except OSError:
            pass

    return behave


@pytest.fixture
def stop(server):
    """Set at the end, so that no thread of the server stays."""
    server.stop = threading.Event()
    yield server.stop
    server.stop.set()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n"


@pytest.mark.parametrize(
    ("part", "at_once", "reason"),
    [
        ("timestamp.json", HEAD + b"X: ", "does not answer: no answer in time"),
        ("targets/", HEAD + b"\r\n", "sends fewer than 100000 bytes"),
        ("timestamp.json", HEAD + b"\r\n", "sends fewer than 100000 bytes"),
    ],
)
def test_a_server_that_sends_a_byte_now_and_then(world, device, stop, part, at_once, reason):
    world.spoil(part, trickle(at_once, b"y" * 5_000))
    slow = world.device(idle_ms=1_000, grace_ms=50, bytes_per_second=100_000, attempts=1)
    with pytest.raises(ServiceUnreachableError, match=reason):
        world.pull(slow, world.push("v2"))


def test_a_server_that_says_nothing(world, device, stop):
    world.spoil("targets/", lambda handler: handler.server.stop.wait())
    mute = world.device(idle_ms=50, attempts=1)
    with pytest.raises(ServiceUnreachableError, match="does not answer"):
        world.pull(mute, world.push("v2"))


def test_nobody_listens(world, refused):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    push = world.push("v2", url=f"http://127.0.0.1:{port}/x")
    refused(ServiceUnreachableError, "does not answer", push)


def test_an_address_that_is_none(world, refused):
    refused(ServiceUnreachableError, "does not answer", world.push("v2", url="file:///etc/passwd"))


def test_a_server_that_sends_the_device_elsewhere(world, refused):
    def elsewhere(handler):
        handler.send_response(302)
        handler.send_header("Location", world.url)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    world.spoil(world.path("v2"), elsewhere)
    refused(ServiceUnreachableError, "302")


def test_a_file_of_another_device_is_refused_unread(world, device, refused):
    push = world.push("v2")
    file = push.files[0]
    name = "shop/ipv/v2/for/d-2/prices.bin"
    other = type(file)(name, world.url + "exclusive/x", "0" * 64, 1, "exclusive", "prices.bin")
    refused(IntegrityError, "wrong device", msgspec.structs.replace(push, files=(file, other)))
    mine = msgspec.structs.replace(other, target=name.replace("d-2", "d-1"))
    enrolled = DeviceIdentity("d-1", "", "1.secret")
    push = msgspec.structs.replace(push, files=(file, mine))
    refused(IntegrityError, "nothing is signed", push, identity=enrolled)
