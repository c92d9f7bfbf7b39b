import gc
import weakref
from types import FunctionType

import pytest

from walle_deploy.model.profile import DeviceProfile
from walle_deploy.model.releases import ActiveRelease, ReleaseTable, VersionFiles
from walle_deploy.policy import classes
from walle_deploy.policy import index as index_module
from walle_deploy.policy.facts import Sources
from walle_deploy.policy.hashing import id_hash
from walle_deploy.policy.index import ReleaseIndex
from walle_deploy.policy.rows import Offer
from walle_stream.errors import SpecFileError


def made(*releases, **table):
    return ReleaseIndex(ReleaseTable(1, releases, **table), Sources())


def release(name, version, stage="full", policy=None, **more):
    return ActiveRelease(name, "s/t", version, stage, policy or {}, salt=name, **more)


def test_the_highest_priority_then_the_newest_decides():
    low = release("a", "v1", created_ms=9)
    high, newer = release("b", "v2", priority=1), release("c", "v3", priority=1, created_ms=1)
    assert made(low, high, newer).decide(DeviceProfile("d")) == [Offer("s/t", "v3", "c")]


def test_who_is_taken_in_by_none_gets_the_stable_version():
    beta = release("b", "v2", "beta", devices=frozenset({"d-1"}))
    index = made(beta, stable={"s/t": "v1"})
    assert index.decide(DeviceProfile("d-1")) == [Offer("s/t", "v2", "b")]
    assert index.decide(DeviceProfile("d-2", "shop")) == [Offer("s/t", "v1", "")]


def test_an_empty_version_is_uninstalled_where_it_is_there():
    index = made(stable={"s/t": ""})
    assert index.decide(DeviceProfile("d")) == []
    assert index.decide(DeviceProfile("d", tasks={"s/t": "v1"})) == [Offer("s/t", "", "")]


def test_what_a_device_has_already_is_not_offered():
    index = made(release("a", "v1"))
    assert index.decide(DeviceProfile("d", tasks={"s/t": "v1", "other/x": "v9"})) == []


def test_hostile_profiles_cannot_make_it_grow(monkeypatch):
    for name, bound in (("_VALUES_MAX", 20), ("CLASSES_MAX", 3)):
        monkeypatch.setattr(index_module, name, bound)
    index = made(
        *(
            release(f"r{n}", "v1", "gray", {"model": f"m{n}", "os": "a"}, percent=50)
            for n in range(8)
        )
    )
    for number in range(500):
        index.decide(DeviceProfile(f"d{number}", model=f"made-up-{number}", os="ab"[number % 2]))
        index.decide(DeviceProfile("d", model=f"m{number % 8}", os="a"))
    assert index.class_count <= 3
    assert all(len(field.kinds) <= 20 for field in index._fields)


def test_models_that_many_policies_tell_apart_cannot_make_it_grow(monkeypatch):
    monkeypatch.setattr(index_module, "_VALUES_MAX", 20)
    index = made(*(release(f"r{n}", f"v{n}", policy={"model": f"*{n}*"}) for n in range(9)))
    for number in range(2_000):
        profile = DeviceProfile("d", model=f"{number:04}")
        assert len(index.decide(profile)) == any(digit in profile.model for digit in "012345678")
    assert all(len(field.outcomes) <= 20 for field in index._fields)


def test_made_up_models_are_of_one_class():
    index = made(release("r", "v1", policy={"model": "Pixel*"}))
    for number in range(500):
        index.decide(DeviceProfile("d", model=f"made-up-{number}"))
    assert index.class_count == 1


def test_a_new_index_is_warmed_by_the_one_before():
    before, after = (
        made(release("a", "v1", policy={"os": "x"})),
        made(release("b", "v2", policy={"os": "x"})),
    )
    before.decide(DeviceProfile("d", os="x"))
    after.warm(before)
    assert after.class_count == 1


def test_a_policy_that_cannot_be_read_is_refused():
    with pytest.raises(SpecFileError, match="policy: colour"):
        made(release("a", "v1", policy={"colour": "red"}))


def test_a_list_that_changes_decides_without_a_new_index(tmp_path):
    file = tmp_path / "ids.txt"
    file.write_text("d-1\n")
    sources = Sources()
    policy = {"devices": {"file": str(file)}}
    index = ReleaseIndex(ReleaseTable(1, (release("a", "v1", policy=policy),)), sources)
    assert [bool(index.decide(DeviceProfile(each))) for each in ("d-1", "d-2")] == [True, False]
    file.write_text("d-2 \n")
    sources.refresh()
    assert [bool(index.decide(DeviceProfile(each))) for each in ("d-1", "d-2")] == [False, True]


@pytest.mark.parametrize("others", [0, 60], ids=["few", "many"])
def test_named_users_and_tests_of_single_devices_are_asked(others):
    # many releases of another task take the way through arrays
    more = [
        ActiveRelease(f"o{n}", "s/o", "v1", "gray", {"percent": 50}, percent=50.0, salt=f"o{n}")
        for n in range(others)
    ]
    vip = release("vip", "v3", policy={"users": ["u-1"]}, priority=2)
    share = release("some", "v2", policy={"percent": 0}, priority=1)
    last = release("all", "v1")
    index = made(vip, share, last, *more)

    def versions(profile):
        return {offer.version for offer in index.decide(profile) if offer.task == "s/t"}

    assert versions(DeviceProfile("d", user="u-1")) == {"v3"}
    assert versions(DeviceProfile("d", user="u-2")) == versions(DeviceProfile("d")) == {"v1"}


def test_a_version_without_code_for_a_device_is_in_nobodys_way():
    code = {"s/t@v1": ("cpython-313", "cpython-314"), "s/t@v2": ("cpython-314",)}
    files = {name: VersionFiles((), {}, found) for name, found in code.items()}
    index = made(release("b", "v2"), stable={"s/t": "v1"}, files=files)
    assert index.decide(DeviceProfile("d", interpreter="cpython-313")) == [Offer("s/t", "v1", "")]
    assert index.decide(DeviceProfile("d", interpreter="cpython-314")) == [Offer("s/t", "v2", "b")]
    assert index.decide(DeviceProfile("d")) == [Offer("s/t", "v2", "b")]  # may be able to
    assert index.decide(DeviceProfile("d", interpreter="cpython-312")) == []
    assert index.unfit_devices == {"b": 1, "": 1}


def test_what_was_rolled_back_goes_where_nothing_comes_in_its_place():
    files = {"s/t@v1": VersionFiles((), {}, ("cpython-313",))}
    gone = {"s/t": frozenset({"v2"}), "s/u": frozenset({"v9"})}
    index = made(stable={"s/t": "v1"}, files=files, withdrawn=gone)

    def decided(interpreter, **tasks):
        has = {f"s/{name}": version for name, version in tasks.items()}
        return index.decide(DeviceProfile("d", interpreter=interpreter, tasks=has))

    assert decided("cpython-313", t="v2") == [Offer("s/t", "v1", "")]
    assert decided("cpython-314", t="v2", u="v8") == [Offer("s/t", "", "")]
    assert decided("cpython-314", t="v0", u="v9") == [Offer("s/u", "", "")]


def test_a_policys_own_share_is_not_that_of_the_steps():
    index = made(release("r", "v1", "gray", {"percent": 50}, percent=50.0))
    taken = sum(bool(index.decide(DeviceProfile(f"d-{n}"))) for n in range(2_000))
    assert 400 < taken < 600  # a half of the half, not all of it


@pytest.mark.parametrize("wide", [1, 1_000], ids=["arrays", "loop"])
def test_an_index_goes_when_nobody_has_it_any_more(wide, monkeypatch):
    monkeypatch.setattr(classes, "_WIDE", wide)
    # services keep what they make of a table from the garbage collector
    index = made(
        release("r", "v1", "gray", {"any": [{"devices": ["d"]}, {"percent": 5}]}, percent=50.0),
        release("b", "v2", "beta", devices=frozenset({"d"})),
        stable={"s/t": "v0"},
        withdrawn={"s/t": frozenset({"v9"})},
    )
    for name in "de":
        index.decide(DeviceProfile(name, app="shop", tasks={"s/t": "v9"}))
    gone = weakref.ref(index)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        del index
        assert gone() is None
        gc.collect()
        # what threads of other tests leave in cycles is not ours
        ours = {each for each in map(module_of, gc.garbage) if each.startswith("walle_deploy")}
        assert not {each for each in ours if not each.startswith("walle_deploy.outbound")}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def module_of(each):
    return (each if isinstance(each, FunctionType) else type(each)).__module__ or ""


def test_devices_are_drawn_into_two_groups_by_the_share():
    index = made(
        release(
            "r",
            "v2",
            "gray",
            {"app": "shop"},
            percent=20.0,
            devices=frozenset({"d-0"}),
            is_watched=True,
            before="v1",
        ),
        stable={"s/t": "v1"},
    )
    seen = {}
    for number in range(200):
        profile = DeviceProfile(f"d-{number}", "shop", tasks={"s/t": "v1"})
        hashed = id_hash(profile.device)
        has = {each.task: each.version for each in index.decide(profile)} or profile.tasks
        (standing,) = index.look(profile, hashed).standings(has).values()
        seen.setdefault((has["s/t"], *standing), []).append(number)
        # who is to have v2 and runs v1 yet is neither; nor is another app, nor another version
        now = index.look(profile, hashed).standings(profile.tasks)
        assert now == ({} if has["s/t"] == "v2" else {"s/t": ("r", "control")})
        other = DeviceProfile(profile.device, "other", tasks={"s/t": "v1"})
        assert index.look(other, hashed).standings(other.tasks) == {}
        assert index.look(profile, hashed).standings({"s/t": "v0", "s/other": "v1"}) == {}
    assert seen[("v2", "r", "")] == [0]  # named: it tried it before
    assert sorted(seen) == [("v1", "r", "control"), ("v2", "r", ""), ("v2", "r", "new")]
    assert 20 < len(seen[("v2", "r", "new")]) < 60


def test_nobody_stands_anywhere_where_no_release_is_in_progress():
    index = made(release("done", "v2"), stable={"s/t": "v1"})
    profile = DeviceProfile("d", tasks={"s/t": "v2"})
    assert index.look(profile, id_hash("d")).standings(profile.tasks) == {}


def test_a_device_whose_python_does_not_fit_is_no_control():
    files = {"s/t@v2": VersionFiles((), {}, ("cpython-314",))}
    watched = {"percent": 1e-9, "is_watched": True, "before": "v1"}
    index = made(release("r", "v2", "gray", **watched), stable={"s/t": "v1"}, files=files)
    for python, group in (("cpython-313", {}), ("cpython-314", {"s/t": ("r", "control")})):
        profile = DeviceProfile("d", interpreter=python, tasks={"s/t": "v1"})
        assert index.look(profile, id_hash("d")).standings(profile.tasks) == group
