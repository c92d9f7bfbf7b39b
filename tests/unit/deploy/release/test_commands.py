import pytest
from msgspec.structs import replace

from tests.unit.deploy.release.groups import both
from walle_deploy.model.releases import VersionFiles
from walle_deploy.release import stored_health
from walle_deploy.release.audit import read_entry
from walle_deploy.release.commands import ReleaseCommands, read_state
from walle_deploy.release.events import Tick
from walle_deploy.release.gates import judge
from walle_deploy.release.limits import Gates
from walle_deploy.release.memory import Memory, look
from walle_deploy.release.progress import describe
from walle_deploy.release.stored_health import put_memory
from walle_stream.errors import ConflictError, RefNotFoundError, ReleaseStateError

TASK = "shop/ipv"
BAD = look(
    Memory(),
    Gates(),
    both({"devices": 100, "failing_devices": 90}, {"devices": 100, "failing_devices": 3}),
    1,
    control_percent=50.0,
)


def to_end(commands, name):
    while commands.apply(name, lambda look, _: Tick(look.now_ms(), "go", 9, "ok")).is_open:
        pass


def stages(store):
    with store.reading() as reading:
        return {each.release_id: read_state(each).stage for each in reading.releases()}


def test_a_release_that_is_done_makes_its_version_the_stable_one(store, commands, release):
    commands.create(release())
    to_end(commands, "r")
    with store.reading() as reading:
        assert (reading.table().releases, reading.stable()) == ((), {TASK: "v2"})


def test_a_rolled_back_version_is_offered_no_more_and_the_stable_one_is_as_before(
    store, commands, release
):
    commands.create(release())
    commands.apply("r", lambda look, _: Tick(look.now_ms(), "go"))
    with store.reading() as reading:
        assert [each.version for each in reading.table().releases] == ["v2"]
    commands.roll_back("r", "slow")
    with store.reading() as reading:
        table = reading.table()
    assert (table.releases, table.stable, list(table.files)) == ((), {TASK: "v1"}, [f"{TASK}@v1"])


def test_what_gates_saw_is_judged_once(store, commands, release, monkeypatch):
    judged = []
    monkeypatch.setattr(
        stored_health, "judge", lambda *given, **how: judged.append(given) or judge(*given, **how)
    )
    commands.create(release("once"))
    commands.apply("once", lambda look, _: Tick(look.now_ms(), "go"))

    def described():
        with store.reading() as reading:
            return describe(reading, reading.release("once")).gates

    for memory in (BAD, replace(BAD, latency=1.0)):
        with store.writing() as writing:
            put_memory(writing, "once", memory)
        first = described()
        assert (described(), first) == (first, judge(Gates(), memory).verdicts)
    assert len(judged) == 2


def test_a_version_is_not_adopted_under_a_release_that_would_take_it_back(store, commands, release):
    commands.publish("shop/cart", "v1", VersionFiles(()))
    commands.publish("shop/cart", "v2", VersionFiles(()))
    commands.create(release("c", task="shop/cart"))
    with pytest.raises(ConflictError, match="release 'c' of shop/cart@v2 came first: roll it back"):
        commands.adopt("shop/cart", "v1")
    commands.roll_back("c", "not yet")
    commands.adopt("shop/cart", "v1")
    with store.reading() as reading:
        assert reading.stable()["shop/cart"] == "v1"


def test_a_task_has_one_release_in_progress(store, commands, release):
    commands.create(release("one"))
    with pytest.raises(ConflictError, match="'one' of shop/ipv@v2 is in progress"):
        commands.create(release("two", "v3"))
    commands.create(release("two", "v3"), supersede=True)
    assert stages(store) == {"one": "superseded", "two": "created"}


def test_a_name_is_used_once_and_a_version_must_be_published(commands, release):
    commands.create(release())
    with pytest.raises(ConflictError, match="used only once"):
        commands.create(release(), supersede=True)
    with pytest.raises(RefNotFoundError, match="v22 was not published, did you mean 'v2'"):
        commands.create(release("other", "v22"))
    with pytest.raises(RefNotFoundError, match="there is no release"):
        commands.pause("none")


def test_the_second_of_two_operators_is_refused(store, commands, release):
    seen = commands.create(release()).revision
    ReleaseCommands(store, "bob").pause("r", "mine", seen)
    with pytest.raises(ConflictError, match="is at revision 2, you saw 1"):
        commands.roll_back("r", "mine", seen)
    assert ConflictError.exit_code == 18


def test_only_the_newest_of_what_is_done_can_be_rolled_back(store, commands, release):
    for name, version in (("one", "v2"), ("two", "v3")):
        commands.create(release(name, version))
        to_end(commands, name)
    assert stages(store) == {"one": "superseded", "two": "done"}
    with pytest.raises(ReleaseStateError):
        commands.roll_back("one")
    commands.roll_back("two")
    with store.reading() as reading:
        assert reading.stable() == {TASK: "v2"}


def test_what_is_done_is_not_rolled_back_under_a_release_in_progress(commands, release):
    commands.create(release("one"))
    to_end(commands, "one")
    commands.create(release("two", "v3"))
    with pytest.raises(ReleaseStateError, match="release 'two' came after it"):
        commands.roll_back("one")


def test_releases_for_some_devices_stand_beside_each_other_until_one_for_all(
    store, commands, release
):
    for name, version, policy in (("a", "v2", {"os": "x"}), ("b", "v3", {"os": "y"})):
        commands.create(release(name, version, policy=policy))
        to_end(commands, name)
    with store.reading() as reading:
        assert [each.release_id for each in reading.table().releases] == ["b", "a"]
    commands.create(release("all", "v3"))
    to_end(commands, "all")
    with store.reading() as reading:
        assert (reading.table().releases, reading.stable()) == ((), {TASK: "v3"})


def test_a_version_is_compared_with_the_one_that_some_devices_have_for_good(commands, release):
    commands.create(release("a", "v2", policy={"os": "x"}))
    to_end(commands, "a")
    state = read_state(commands.create(release("b", "v3", policy={"os": "x"})))
    assert (state.previous, state.before) == ("v1", "v2")


def test_somebody_goes_on_and_the_log_says_who_and_why(store, commands, release):
    commands.create(release(gray=[{"percent": 5, "minDevices": 50}]))
    commands.advance("r")
    commands.advance("r", "nobody is in it", 2)
    with pytest.raises(ConflictError, match="at revision 3, you saw 2"):
        commands.advance("r", "", 2)
    commands.advance("r")
    with store.reading() as reading:
        entries = [read_entry(each) for each in reading.audit("r")]
        assert reading.stable() == {TASK: "v2"}
    assert [each.action for each in entries] == ["create", *["advance"] * 3]
    assert (entries[2].by, entries[2].why, entries[2].stage) == ("ann", "nobody is in it", "full")
    assert (entries[3].stage, entries[3].percent, entries[3].stable) == ("done", 100, "v2")


def test_who_goes_on_against_the_gates_is_stopped(store, commands, release):
    commands.create(release())
    commands.advance("r")
    with store.writing() as writing:
        put_memory(writing, "r", BAD)
    assert read_state(commands.advance("r", "go on")).stage == "rolled_back"


def test_one_that_somebody_finishes_supersedes_those_that_are_done(store, commands, release):
    commands.create(release("a", policy={"os": "x"}, gray=[]))
    commands.create(release("b", "v3", gray=[]), supersede=True)
    for _ in range(2):
        commands.advance("b")
    commands.create(release("c", "v2", policy={"os": "x"}, gray=[]))
    for _ in range(2):
        commands.advance("c")
    commands.create(release("d", "v1", gray=[]))
    for _ in range(2):
        commands.advance("d")
    with store.reading() as reading:
        stages = [read_state(each).stage for each in reading.releases()]
    assert stages == ["superseded", "superseded", "superseded", "done"]


def test_a_version_that_is_released_again_is_judged_anew(store, commands, release):
    commands.create(release("a"))
    commands.advance("a")
    with store.writing() as writing:
        put_memory(writing, "a", BAD)
    commands.roll_back("a")
    commands.create(release("b"))
    commands.advance("b")
    with store.reading() as reading:
        first, second = (describe(reading, each) for each in reading.releases())
    assert {each.outcome for each in first.gates} == {"stop", "go"}
    assert (second.reporting_devices, second.gates) == (0, ())


def test_what_is_not_there_is_answered_with_what_is_at_most_ten_and_once(commands, release):
    for number in range(10, 35):
        commands.publish(TASK, f"w{number}", VersionFiles(()))
    with pytest.raises(RefNotFoundError) as caught:
        commands.create(release(version="nosuch"))
    assert caught.value.message.endswith(
        "; the last of 28 are: w" + ", w".join(map(str, range(25, 35)))
    )
    with pytest.raises(RefNotFoundError, match='no release "x": there is none at all'):
        commands.pause("x")
    commands.create(release("abc"))
    with pytest.raises(RefNotFoundError) as caught:
        commands.pause("nosuch")
    assert all(part in caught.value.message for part in ('"nosuch"', "abc"))
    with pytest.raises(RefNotFoundError, match=r'no release "abd", did you mean \'abc\'\?$'):
        commands.pause("abd")
