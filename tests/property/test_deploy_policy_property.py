"""The index decides what the plain reading of all policies says, whatever they are."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walle_deploy.model.profile import DeviceProfile
from walle_deploy.model.releases import ActiveRelease, ReleaseTable, VersionFiles
from walle_deploy.policy import classes
from walle_deploy.policy.attributes import AttributeSource
from walle_deploy.policy.dry_run import decisions, grouped
from walle_deploy.policy.facts import Facts, Sources
from walle_deploy.policy.hashing import id_hash, is_within, salt_key, share_limit
from walle_deploy.policy.index import ReleaseIndex
from walle_deploy.policy.judging import choose, judge, releases_by_task
from walle_deploy.policy.model import Policy
from walle_deploy.policy.versions import parse_version_range, try_version

DEVICES = [f"d-{number}" for number in range(12)]
USERS = ["", "u-1", "u-2", "u-3", "u-9"]
VERSIONS = ["", "6.9", "7.0.0", "7.1.0-rc.1", "7.1", "8", "nonsense"]
RANGES = [">=7.1", "<8 >=7", "7.0", "!=8"]
INTERPRETERS = ["", "cpython-313", "cpython-314"]
TASKS = ["shop/a", "shop/b", "read/c"]


def listed(values):
    return st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True)


def conditions(folder):
    found = {
        "app": listed(["shop", "read"]),
        "appVersion": st.sampled_from(RANGES),
        "os": st.sampled_from(["android", "ios"]),
        "osVersion": st.sampled_from(RANGES),
        "model": listed(["Pixel*", "P?", "x[0-9]", "*"]),
        "memory": st.sampled_from([">= 4GiB", "<2GiB", ">=1GiB <8GiB"]),
        "performance": listed(["low", "middle", "high"]),
        "interpreter": listed(INTERPRETERS[1:]),
        "ageBand": listed(["18-24", "25-34"]),
        "region": listed(["cn-*", "eu-west"]),
        "interestTags": listed(["shoes", "books"]),
        "percent": st.sampled_from([0, 1, 30.5, 99, 100]),
        "devices": listed(DEVICES)
        | st.just({"file": str(folder / "ids.txt")})
        | st.just({"file": "/nowhere"}),
        "users": listed(USERS[1:]) | st.just({"file": str(folder / "ids.txt")}),
    }
    # one or two at a time: policies of many conditions hold for nobody
    single = st.one_of([st.fixed_dictionaries({key: value}) for key, value in found.items()])
    return st.tuples(single, single).map(lambda pair: pair[0] | pair[1]) | single


def policies(folder):
    return st.recursive(
        conditions(folder) | st.just({}),
        lambda inner: st.one_of(
            st.fixed_dictionaries({"all": st.lists(inner, max_size=2)}),
            st.fixed_dictionaries({"any": st.lists(inner, min_size=1, max_size=3)}),
            st.fixed_dictionaries({"not": inner}, optional={"app": st.just("shop")}),
            st.fixed_dictionaries({"exclude": st.lists(inner, max_size=2)}),
        ),
        max_leaves=5,
    )


def tables(folder, count):
    releases = st.lists(
        st.builds(
            ActiveRelease,
            release_id=st.uuids().map(str),
            task=st.sampled_from(TASKS),
            version=st.sampled_from(["v1", "v2", "v3"]),
            stage=st.sampled_from(["beta", "gray", "full", "full"]),
            policy=policies(folder),
            devices=st.frozensets(st.sampled_from(DEVICES), max_size=3),
            percent=st.sampled_from([0.0, 5.0, 50.0, 100.0]),
            salt=st.sampled_from(["r1", "r2"]),
            priority=st.integers(0, 2),
            created_ms=st.integers(0, 3),
            is_watched=st.booleans(),
            before=st.sampled_from(["", "v0", "v1"]),
        ),
        min_size=count[0],
        max_size=count[1],
    )
    stable = st.dictionaries(st.sampled_from(TASKS), st.sampled_from(["", "v0", "v1"]))
    return st.builds(
        ReleaseTable,
        generation=st.just(1),
        releases=releases.map(tuple),
        stable=stable,
        files=st.dictionaries(
            st.tuples(st.sampled_from(TASKS), st.sampled_from(["v0", "v1", "v2"])).map("@".join),
            st.lists(st.sampled_from(INTERPRETERS[1:]), max_size=2).map(
                lambda found: VersionFiles((), {}, tuple(found))
            ),
        ),
        withdrawn=st.dictionaries(
            st.sampled_from([*TASKS, "old/x"]), st.frozensets(st.sampled_from(["v0", "v1", "v2"]))
        ),
    )


PROFILES = st.builds(
    DeviceProfile,
    device=st.sampled_from(DEVICES),
    app=st.sampled_from(["", "shop", "read"]),
    app_version=st.sampled_from(VERSIONS),
    os=st.sampled_from(["", "android", "ios"]),
    os_version=st.sampled_from(VERSIONS),
    model=st.sampled_from(["", "Pixel 8", "P9", "x7"]),
    memory_mb=st.sampled_from([0, 1_024, 4_096, 16_384]),
    performance=st.sampled_from(["", "low", "high"]),
    interpreter=st.sampled_from(INTERPRETERS),
    user=st.sampled_from(USERS),
    tasks=st.dictionaries(st.sampled_from([*TASKS, "old/x"]), st.sampled_from(["v0", "v1", "v2"])),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("policies")
    (made / "ids.txt").write_text("# some\nd-1\n\nd-5\nu-2\n")
    (made / "users.csv").write_text(
        "user,age_band,region,interest_tags\nu-1,18-24,cn-east,shoes|hats\nu-2,,eu-west,\nu-3,25-34,,books\n"
    )
    return made


@pytest.fixture(scope="module")
def sources(folder):
    made = Sources(AttributeSource(file=folder / "users.csv"))
    made.refresh()
    return made


def naive(table, profile, sources):
    facts = Facts(profile, sources, id_hash(profile.device))
    return sorted(
        (choice.task, choice.version, choice.release_id)
        for choice in choose(table, facts)
        if choice.version is not None and choice.version != profile.tasks.get(choice.task, "")
    )


@pytest.mark.parametrize("wide", [1, 1_000], ids=["arrays", "loop"])
def test_the_index_decides_as_the_plain_reading_does(wide, folder, sources, monkeypatch):
    monkeypatch.setattr(classes, "_WIDE", wide)

    @settings(max_examples=200, database=None)
    @given(tables(folder, (0, 6)), st.lists(PROFILES, min_size=4, max_size=12))
    def check(table, profiles):
        index = ReleaseIndex(table, sources)
        for profile in profiles:
            assert sorted(index.decide(profile)) == naive(table, profile, sources)

    check()


def naive_standing(table, facts, task, version):
    """Where a device stands, one release at a time."""
    device, beyond = facts.profile.device, ("", "")
    for each in releases_by_task(table).get(task, ()):
        code = table.interpreters(task, each.version)
        fits = not code or facts.profile.interpreter in {"", *code}
        if not fits or not judge(Policy.of(each.policy), facts, each.salt).truth:
            continue
        is_named = device in each.devices
        is_in = is_within(facts.device_hash, salt_key(each.salt), share_limit(each.percent))
        if is_named or (each.stage != "beta" and is_in):
            if each.version != version:
                return ("", "")
            if beyond[0]:
                return beyond
            group = "" if is_named else "new"
            return (each.release_id, group) if each.is_watched else ("", "")
        # a share of nobody is of no release in progress
        has_share = each.stage != "beta" and each.percent > 0
        if has_share and each.is_watched and each.before == version:
            beyond = (each.release_id, "control")
    return beyond


@pytest.mark.parametrize("wide", [1, 1_000], ids=["arrays", "loop"])
def test_the_index_says_where_a_device_stands(wide, folder, sources, monkeypatch):
    monkeypatch.setattr(classes, "_WIDE", wide)

    @settings(max_examples=100, database=None)
    @given(tables(folder, (0, 6)), st.lists(PROFILES, min_size=2, max_size=6))
    def check(table, profiles):
        index = ReleaseIndex(table, sources)
        for profile in profiles:
            offered = {each.task: each.version for each in index.decide(profile)}
            versions = {**profile.tasks, **offered}
            hashed = id_hash(profile.device)
            facts = Facts(profile, sources, hashed)
            wanted = {
                task: naive_standing(table, facts, task, version)
                for task, version in versions.items()
                if version
            }
            found = index.look(profile, hashed).standings(versions)
            assert found == {task: each for task, each in wanted.items() if each[0]}

    check()


def test_a_dry_run_says_what_the_index_gives(folder, sources):
    @settings(max_examples=100, database=None)
    @given(tables(folder, (0, 6)), st.lists(PROFILES, min_size=1, max_size=8))
    def check(table, profiles):
        index = ReleaseIndex(table, sources)
        total = 0
        for profile in profiles:
            found = list(decisions(table, [profile], sources))
            total += len(found)
            said = [
                (each.task, each.version, each.release)
                for each in found
                if each.version is not None and not each.has_it
            ]
            assert sorted(said) == sorted(index.decide(profile))
            assert all(each.why for each in found)
        groups = grouped(decisions(table, profiles, sources))
        assert sum(each.devices for each in groups) == total

    check()


@given(st.text(), st.text(), st.floats(0, 100), st.floats(0, 100))
@settings(max_examples=200, database=None)
def test_who_is_in_a_share_is_in_each_larger_one(device, salt, one, other):
    small, large = sorted((one, other))
    hashed, key = id_hash(device), salt_key(salt)
    assert is_within(hashed, key, share_limit(100))
    assert not is_within(hashed, key, share_limit(0))
    if is_within(hashed, key, share_limit(small)):
        assert is_within(hashed, key, share_limit(large))


@given(st.text(max_size=20), st.sampled_from(RANGES))
@settings(max_examples=200, database=None)
def test_a_version_is_compared_or_is_none(text, range_):
    version = try_version(text)
    assert version is None or parse_version_range(range_)(version) in {True, False}
