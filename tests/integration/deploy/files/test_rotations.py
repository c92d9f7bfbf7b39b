"""Keys that change, as devices see it: those with an old root and those in the middle of it."""

import shutil

import msgspec
import pytest

from walle_deploy.trust.repository import TrustedRepository
from walle_deploy.trust.roles import SIGNED_AT, expiry_of
from walle_deploy.trust.rotation import rotate_key
from walle_deploy.trust.signing import _signed
from walle_stream.errors import (
    DeployError,
    IntegrityError,
    RefNotFoundError,
    ServiceUnreachableError,
)

pytestmark = pytest.mark.integration

ROLES = ("timestamp", "snapshot", "targets", "packages", "root")


def take(world, device, version):
    device._metadata._last = None  # asks again within the half minute
    return world.pull(device, world.push(version))


def drop_keys(world, role):
    for path in (world.folder / "repository" / "keys").glob(f"{role}-*"):
        path.unlink()


@pytest.mark.parametrize("role", ROLES)
def test_devices_of_before_go_on_after_a_rotation(world, role):
    first, seen = world.repository.root(), world.device("seen")
    take(world, seen, "v1")
    new = world.repository.rotate(role)
    assert new in str(world.repository.status())
    world.publish("v2")
    take(world, seen, "v2")
    take(world, world.device("late", first), "v2")
    assert not list((world.folder / "repository" / "keys").glob(f"{role}-[!{new[0]}]*"))


@pytest.mark.parametrize("role", ["timestamp", "snapshot", "targets", "packages"])
def test_a_lost_key_is_replaced(world, role):
    seen = world.device("seen")
    take(world, seen, "v1")
    drop_keys(world, role)
    if role != "targets":
        with pytest.raises(DeployError, match=f"1 of the keys of '{role}' are needed, 0 of its 1"):
            world.publish("v2")
    world.repository.rotate(role, is_lost=True)
    world.publish("v2")
    take(world, seen, "v2")


def test_what_a_stolen_key_signs_is_refused_once_it_is_replaced(world):
    seen, saved = world.device("seen"), world.folder / "stolen"
    shutil.copytree(world.folder / "repository", saved)
    world.repository.rotate("packages", is_lost=True)
    world.repository.rotate("snapshot", is_lost=True)
    world.repository.rotate("timestamp", is_lost=True)
    take(world, seen, "v1")
    thief = TrustedRepository(saved)
    for _ in range(9):
        thief.refresh()
    stolen = (saved / "public" / "metadata" / "timestamp.json").read_bytes()
    world.serve("timestamp.json", stolen)
    with pytest.raises(IntegrityError, match="timestamp was signed by 0/1 keys"):
        take(world, seen, "v1")


# so far that by its time all that is signed has run out: the timestamp; the roots, too
@pytest.mark.parametrize("ahead_ms", [80_000_000, 100_000_000, 50 * 365 * 86_400_000])
def test_a_thief_that_runs_ahead_is_shaken_off(world, ahead_ms):
    # a stolen timestamp key can sign version 1000; a new key makes it count for nothing
    seen, signing = world.device("seen"), world.repository._signing
    current = signing.load()
    stolen = current.timestamp.signed
    stolen.version += 1_000
    stolen.unrecognized_fields[SIGNED_AT] = world.clock() + ahead_ms
    stolen.expires = expiry_of("timestamp", world.clock() + ahead_ms)
    world.serve("timestamp.json", _signed(stolen, signing.signers(current, "timestamp")))
    take(world, seen, "v1")
    assert seen._metadata._floor_ms() == stolen.unrecognized_fields[SIGNED_AT]
    world.server.evil = {}
    with pytest.raises(IntegrityError, match=r"older than what was seen|root.json is expired"):
        take(world, seen, "v1")
    world.repository.rotate("timestamp", is_lost=True)
    take(world, seen, "v1")
    assert seen._metadata._floor_ms() <= world.clock()


def test_the_time_that_was_signed_counts_after_a_rotation_too(world):
    seen = world.device("seen")
    for _ in range(2):
        world.repository.rotate("timestamp")
        take(world, seen, "v1")
        signed = world.repository._signing.load().timestamp.signed
        assert seen._metadata._floor_ms() == signed.unrecognized_fields[SIGNED_AT]
        # also while nobody gives it the newest roots
        world.spoil("root.json", lambda handler: handler.send_error(500))
        with pytest.raises(ServiceUnreachableError):
            take(world, seen, "v1")
        assert seen._metadata._floor_ms() == signed.unrecognized_fields[SIGNED_AT]
        world.server.evil = {}


@pytest.mark.parametrize("role", ROLES)
def test_a_device_that_looks_in_the_middle_of_a_rotation(world, role, monkeypatch):
    looked = []
    signing = world.repository._signing

    def look(name, original):
        def call(*args, **kwargs):
            done = original(*args, **kwargs)
            take(world, world.device(f"{name}-{len(looked)}"), "v1")
            looked.append(name)
            return done

        return call

    for name in ("write_root", "commit"):
        monkeypatch.setattr(signing, name, look(name, getattr(signing, name)))
    rotate_key(signing, role, "", is_lost=False)
    assert looked


def test_a_new_root_needs_as_many_keys_as_are_said(world, tmp_path):
    repository = TrustedRepository.create(tmp_path / "three", root_keys=(3, 2), bin_bits=2)
    root = repository.status().roles[0]
    assert (len(root.keys), root.threshold, root.keys_here) == (3, 2, 3)
    with pytest.raises(RefNotFoundError, match="'root' has 3 keys: name one of"):
        repository.rotate("root")
    first, second, third = root.keys
    (repository.keys.folder / f"root-{first}.pem").unlink()
    new = repository.rotate("root", key_id=first, is_lost=True)
    assert set(repository.status().roles[0].keys) == {new, second, third}
    for each in (new, second):
        (repository.keys.folder / f"root-{each}.pem").unlink()
    with pytest.raises(DeployError, match="2 of the keys of 'root' are needed, 1 of its 3"):
        repository.rotate("timestamp")


def test_a_root_that_one_key_of_two_signed_is_refused(world, tmp_path):
    repository = TrustedRepository.create(tmp_path / "two", root_keys=(2, 2), bin_bits=2)
    device = world.device("seen", repository.root())
    world.server.folder = tmp_path / "two" / "public"
    repository.rotate("root", key_id=repository.status().roles[0].keys[0])
    path = tmp_path / "two" / "public" / "metadata" / "2.root.json"
    given = msgspec.json.decode(path.read_bytes())
    given["signatures"] = given["signatures"][:1]
    path.write_bytes(msgspec.json.encode(given))
    with pytest.raises(IntegrityError, match="root was signed by 1/2 keys"):
        take(world, device, "v1")
