from random import Random

import pytest

from walle_deploy.policy.hashing import id_hash
from walle_deploy.service import registry as registry_module
from walle_deploy.service.registry import KnownDevices


def see(known, name, **tasks):
    known.see(id_hash(name), {f"s/{task}": version for task, version in tasks.items()})


def test_devices_are_counted_by_what_they_have_now():
    known = KnownDevices(1_000)
    for number in range(300):
        see(known, f"d-{number}", a="v1", b="v1")
    for number in range(100):
        see(known, f"d-{number}", a="v2", b="v1")
    assert len(known) == 300
    assert known.counts() == {("s/a", "v1"): 200, ("s/a", "v2"): 100, ("s/b", "v1"): 300}


def test_it_equals_a_dictionary_while_there_is_room():
    rng, known, plain = Random(1), KnownDevices(5_000), {}
    for _ in range(6_000):
        name, version = f"d-{rng.randrange(3_000)}", f"v{rng.randrange(3)}"
        plain[name] = version
        see(known, name, a=version)
    assert len(known) == len(plain)
    assert known.forgotten == 0
    expected = {
        ("s/a", version): list(plain.values()).count(version) for version in set(plain.values())
    }
    assert known.counts() == expected


def test_who_was_not_seen_for_the_longest_time_is_forgotten_first(monkeypatch):
    monkeypatch.setattr(registry_module, "_SHARDS", 1)
    known = KnownDevices(6_000)
    for number in range(30_000):
        see(known, f"d-{number}", a="old" if number < 20_000 else "new")
    assert (len(known), known.forgotten) == (6_316, 23_684)
    assert known.counts() == {("s/a", "new"): len(known)}
    see(known, "d-23684", a="new")
    see(known, "d-30000", a="new")
    see(known, "d-23684", a="newer")  # it was seen again, so another one went
    assert (len(known), known.forgotten) == (6_316, 23_685)


def test_a_hostile_fleet_cannot_make_it_remember_more(monkeypatch):
    monkeypatch.setattr(registry_module, "_SETS_MAX", 10)
    monkeypatch.setattr(registry_module, "_CELLS_MAX", 15)
    known = KnownDevices(1_000)
    for number in range(200):
        known.see(id_hash(f"d-{number}"), {f"s/t{number}": "v", "s/u": "v"})
    assert len(known) == 200
    assert len(known._sets) <= 11  # with that of all the others
    assert known._cells <= 15
    # what nobody has any more makes room for what somebody has
    for number in range(200):
        known.see(id_hash(f"d-{number}"), {})
    known.see(id_hash("d-1"), {"s/new": "v"})
    assert known.counts() == {("s/new", "v"): 1}


def test_what_is_settled_is_seen_again_and_forgotten_with_its_device(monkeypatch):
    monkeypatch.setattr(registry_module, "_SHARDS", 1)
    known = KnownDevices(0)  # room for 16
    for number in range(16):
        see(known, f"d-{number}", a="v1")
        known.settle(id_hash(f"d-{number}"), number)
    assert known.is_settled(id_hash("d-0"), 0)
    assert not known.is_settled(id_hash("d-1"), 0)
    see(known, "d-new", a="v1")
    assert known.is_settled(id_hash("d-0"), 0)
    assert not known.is_settled(id_hash("d-1"), 1)
    see(known, "d-1", a="v1")
    assert not known.is_settled(id_hash("d-1"), 1)


@pytest.mark.parametrize("shards", [1, 256])
def test_a_question_names_the_device_that_asked_it_last(monkeypatch, shards):
    monkeypatch.setattr(registry_module, "_SHARDS", shards)
    known = KnownDevices(0)
    for number in range(20_000):
        see(known, f"d-{number}", a="v1")
        for question in (2 * number + 1, 2 * number + 2):
            known.settle(id_hash(f"d-{number}"), question, names_device=True)
    assert known.asker(2 * number + 2) == id_hash(f"d-{number}")
    # another one came, or it is forgotten
    assert known.asker(2 * number + 1) == known.asker(2) == 0
    assert sum(map(len, known._askers)) == len(known)
