from random import Random

from walle_deploy.policy.hashing import id_hash
from walle_deploy.service import registry as registry_module
from walle_deploy.service.registry import KnownDevices
from walle_deploy.service.shard import Shard

KIND = ("shop", "7.1")


def see(known, name, now_s, **tasks):
    known.see(id_hash(name), KIND, {f"s/{task}": version for task, version in tasks.items()}, now_s)


def test_devices_are_counted_by_what_they_have_now():
    known = KnownDevices(1_000)
    for number in range(300):
        see(known, f"d-{number}", 1, a="v1", b="v1")
    for number in range(100):
        see(known, f"d-{number}", 2, a="v2", b="v1")
    assert len(known) == 300
    assert known.counts() == {("s/a", "v1"): 200, ("s/a", "v2"): 100, ("s/b", "v1"): 300}
    assert known.classes() == {KIND: 300}


def test_it_equals_a_dictionary_while_there_is_room():
    rng, known, plain = Random(1), KnownDevices(5_000), {}
    for step in range(6_000):
        name, version = f"d-{rng.randrange(3_000)}", f"v{rng.randrange(3)}"
        plain[name] = version
        see(known, name, 1 + step, a=version)
    assert len(known) == len(plain)
    assert known.forgotten == 0
    expected = {
        ("s/a", version): list(plain.values()).count(version) for version in set(plain.values())
    }
    assert known.counts() == expected
    assert sum(known.classes().values()) == len(plain)


def test_who_was_not_seen_for_the_longest_time_is_forgotten_first():
    known = KnownDevices(6_400)
    for number in range(30_000):
        see(known, f"d-{number}", 1 + number // 100, a="old" if number < 20_000 else "new")
    assert len(known) <= 6_400 * 1.05 + 64 * 16
    assert known.forgotten + len(known) == 30_000
    assert known.counts() == {("s/a", "new"): len(known)}
    before = len(known)
    see(known, "d-29999", 400, a="new")  # the last ones are there
    assert len(known) == before


def test_rows_with_hashes_that_crowd_together_are_kept_apart():
    # all want the last slot of the smallest table, then of larger ones
    hashes = [(number << 32) | 0xFFFF for number in range(1, 200)]
    shard = Shard(1_000)
    for hashed in hashes:
        shard.make_room()
        slot = hashed & shard.mask
        while shard.hashes[slot]:
            slot += 1
        shard.hashes[slot], shard.seen[slot] = hashed, 1
        shard.count += 1
    assert shard.count == 199
    for hashed in hashes:
        slot = hashed & shard.mask
        while shard.hashes[slot] != hashed:
            assert shard.hashes[slot]
            slot += 1


def test_a_hostile_fleet_cannot_make_it_remember_more(monkeypatch):
    for name, bound in (
        ("_SETS_MAX", 10),
        ("_CELLS_MAX", 15),
        ("_CLASSES_MAX", 5),
    ):
        monkeypatch.setattr(registry_module, name, bound)
    known = KnownDevices(1_000)
    for number in range(200):
        known.see(id_hash(f"d-{number}"), (f"app-{number}",), {f"s/t{number}": "v", "s/u": "v"}, 1)
    assert len(known) == 200
    assert len(known._sets._numbers) <= 10
    assert known._sets._cells <= 15
    assert len(known.classes()) <= 5
    # what nobody has any more makes room for what somebody has
    for number in range(200):
        known.see(id_hash(f"d-{number}"), KIND, {}, 2)
    known.see(id_hash("d-1"), KIND, {"s/new": "v"}, 3)
    assert known.counts() == {("s/new", "v"): 1}
