import asyncio
from base64 import urlsafe_b64decode
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.deploy.service.offering import (
    SPEC,
    MemoryTable,
    pushed,
    running,
)
from walle_deploy.model.held import HOUR_MS, RENEWED_MS, HeldReceipt, HeldReceipts, is_fresh
from walle_deploy.model.profile import DeviceProfile, decode_profile, encode_profile
from walle_deploy.model.pushes import Push
from walle_deploy.model.receipts import ReceiptKeys
from walle_deploy.model.releases import ActiveRelease, ReleaseTable, VersionFiles
from walle_deploy.policy.rows import Standing
from walle_deploy.service.middleware import encode_push
from walle_deploy.service.pushing import receipts_due
from walle_deploy.service.service import Parts
from walle_stream.errors import ProfileError

NOW = 500_000 * HOUR_MS + 7
HOUR = NOW // HOUR_MS


class Keys:
    """``StoredReceiptKeys`` with one key and a clock that is set."""

    def __init__(self):
        self.keys, self.now = ReceiptKeys.create(), NOW

    @property
    def known(self):
        return self.keys

    def now_ms(self):
        return self.now

    def refresh(self):
        pass


def made(percent=50.0, **more):
    release = ActiveRelease(
        "r",
        "s/t",
        "v2",
        "gray",
        {"app": "shop"},
        frozenset({"d-beta"}),
        percent,
        "r",
        is_watched=True,
        before="v1",
    )
    files = {name: VersionFiles((pushed(name),)) for name in ("s/t@v1", "s/t@v2", "s/u@v1")}
    return ReleaseTable(1, (release,), {"s/t": "v1", "s/u": "v1"}, files, **more)


class Asking:
    """Devices that keep what they are given, as the agent does."""

    def __init__(self, service, keys):
        self.service, self.keys = service, keys

    def check(self, device, held, app="shop", **tasks):
        tasks = {name.replace("_", "/"): version for name, version in tasks.items()}
        profile = DeviceProfile(device, app, tasks=tasks, receipts=held)
        return self.service.check(encode_profile(profile).encode())

    def read(self, push):
        found = {}
        for task, token in push.receipts.items():
            receipt = self.keys.keys.read(token, self.keys.now)
            assert (receipt.task, receipt.issued_ms) == (task, self.keys.now)
            found[task] = (receipt.device, receipt.version, receipt.release, receipt.group)
        return found


def unpacked(value):
    return msgspec.json.decode(urlsafe_b64decode(value + b"=" * (-len(value) % 4)), type=Push)


@pytest.fixture
def ask():
    def run(check, table=None):
        async def inside():
            keys = Keys()
            parts = Parts(MemoryTable(table or made()), receipts=keys)
            async with running(parts, SPEC) as service:
                check(Asking(service, keys), service)

        asyncio.run(inside())

    return run


def drawn(asking, device):
    """Return the version that a device should have."""
    return asking.check(device, None, s_u="v1").tasks[0].version


def test_a_push_brings_the_receipt_for_its_version(ask):
    def check(asking, service):
        groups = {"v1": "control", "v2": "new"}
        for number in range(20):
            device = f"d-{number}"
            push = asking.check(device, HeldReceipts(HOUR), s_u="v1")
            (task,) = push.tasks
            assert asking.read(push) == {"s/t": (device, task.version, "r", groups[task.version])}
        push = asking.check("d-beta", HeldReceipts(HOUR), s_u="v1")
        assert asking.read(push) == {"s/t": ("d-beta", "v2", "r", "")}

    ask(check)


def test_a_device_without_receipts_is_given_them_alone(ask):
    def check(asking, service):
        device = next(f"d-{n}" for n in range(99) if drawn(asking, f"d-{n}") == "v1")
        push = asking.check(device, HeldReceipts(), s_t="v1", s_u="v1", s_x="v9")
        assert (push.tasks, push.metadata_url) == ((), "")
        assert asking.read(push) == {
            "s/t": (device, "v1", "r", "control"),
            "s/u": (device, "v1", "", ""),
        }  # of a task that the service does not know it says nothing
        assert service.answers["receipts"] == 1
        held = HeldReceipts(HOUR, {"s/t": HeldReceipt(HOUR, "r", "control"), "s/x": HeldReceipt()})
        assert asking.check(device, held, s_t="v1", s_u="v1", s_x="v9") is None
        # one of them alone is missing
        held = HeldReceipts(HOUR, {"s/t": HeldReceipt(HOUR, "r", "control"), "s/u": HeldReceipt()})
        push = asking.check(device, held, s_t="v1", s_u="v1")
        assert asking.read(push) == {"s/u": (device, "v1", "", "")}

    ask(check)


@pytest.mark.parametrize(
    "said",
    [
        HeldReceipt(),
        HeldReceipt(HOUR),
        HeldReceipt(HOUR, "r", "new"),
        HeldReceipt(HOUR, "other", "control"),
        HeldReceipt(HOUR, "r"),
        HeldReceipt(HOUR - RENEWED_MS // HOUR_MS - 1, "r", "control"),
        HeldReceipt(HOUR + 24, "r", "control"),  # of a clock that was a day ahead
    ],
)
def test_what_the_service_would_not_issue_now_is_renewed(ask, said):
    def check(asking, service):
        device = next(f"d-{n}" for n in range(99) if drawn(asking, f"d-{n}") == "v1")
        push = asking.check(device, HeldReceipts(HOUR, {"s/t": said}), s_t="v1", s_u="v1")
        assert asking.read(push) == {"s/t": (device, "v1", "r", "control")}

    ask(check)


def test_receipts_are_renewed_after_three_days_and_when_they_are_of_the_future(ask):
    def check(asking, service):
        for hour, is_renewed in (
            (HOUR, False),
            (HOUR - RENEWED_MS // HOUR_MS, False),
            (HOUR - RENEWED_MS // HOUR_MS - 1, True),
            (HOUR + 1, True),
            (0, True),
        ):
            found = asking.check("d", HeldReceipts(hour), s_u="v1", app="other", s_t="v1")
            assert (found is not None) == is_renewed

    ask(check)


def test_receipts_of_another_store_or_before_a_restoration_are_renewed(ask):
    def check(asking, service):
        (known,) = asking.keys.keys._keys
        for keys, is_renewed in (([known], False), (["gone"], True), ([known, "gone"], True)):
            held = HeldReceipts(HOUR, {}, keys)
            found = asking.check("d", held, app="other", s_t="v1", s_u="v1")
            assert (set(found.receipts) == {"s/t", "s/u"} if found else False) == is_renewed

    ask(check)


def test_a_release_that_ended_is_in_no_receipt(ask):
    def check(asking, service):
        said = HeldReceipts(HOUR, {"s/t": HeldReceipt(HOUR, "r", "control")})
        push = asking.check("d-1", said, s_t="v1")
        assert asking.read(push) == {"s/t": ("d-1", "v1", "", "")}
        assert asking.check("d-1", HeldReceipts(HOUR), s_t="v1") is None

    ask(check, ReleaseTable(1, (), {"s/t": "v1"}, {"s/t@v1": VersionFiles((pushed("a"),))}))


def test_who_takes_no_receipts_is_given_none(ask):
    def check(asking, service):
        assert asking.check("d-1", None, s_u="v1").receipts == {}
        assert asking.check("d-1", None, app="other", s_t="v1", s_u="v1") is None

    ask(check)


def test_a_service_without_a_store_issues_none():
    async def run():
        async with running(Parts(MemoryTable(made()))) as service:
            push = service.check(
                encode_profile(DeviceProfile("d", "shop", receipts=HeldReceipts())).encode()
            )
            assert push.tasks
            assert push.receipts == {}

    asyncio.run(run())


def test_a_lie_gets_a_receipt_for_what_was_said_alone(ask):
    def check(asking, service):
        # whoever says to have a version gets a receipt that it has this one, of no group
        device = next(f"d-{n}" for n in range(99) if drawn(asking, f"d-{n}") == "v1")
        push = asking.check(device, HeldReceipts(), s_t="v2")
        assert asking.read(push)["s/t"] == (device, "v1", "r", "control")  # it is pushed v1
        push = asking.check(device, HeldReceipts(), app="other", s_t="v2")
        assert asking.read(push)["s/t"] == (device, "v1", "", "")
        # to be held out, or of another app, and have what nobody offers, is no group
        push = asking.check("d-beta", HeldReceipts(), s_t="v1")
        assert asking.read(push)["s/t"] == ("d-beta", "v2", "r", "")

    ask(check)


def test_what_a_profile_says_of_receipts_is_bounded():
    many = HeldReceipts(1, {f"t{n}": HeldReceipt() for n in range(257)})
    with pytest.raises(ProfileError, match="257 tasks"):
        decode_profile(encode_profile(DeviceProfile("d", receipts=many)))
    # what would be too long for the header is left out
    tasks = {f"scenario/task-{n:03}": "v1" for n in range(200)}
    long = HeldReceipts(1, {name: HeldReceipt(HOUR, "a-release", "control") for name in tasks})
    profile = decode_profile(encode_profile(DeviceProfile("d", tasks=tasks, receipts=long)))
    assert (len(profile.tasks), profile.receipts) == (200, None)


def test_receipts_that_fit_into_no_header_come_with_the_next_answers(ask):
    def check(asking, service):
        known = set()
        push = asking.check("d", HeldReceipts(), s_u="v1", s_t="v1", app="other")
        one = {"s/u": push.receipts["s/u"]}
        room = len(encode_push(type(push)((), receipts=one), 10**6)[0])
        for begin in range(2):
            value, too_long = encode_push(push, room, begin)
            assert len(value) <= room
            assert too_long == []
            known |= set(unpacked(value).receipts)
        assert known == {"s/t", "s/u"}
        assert encode_push(push, room // 2) == (b"", [])

    ask(check)


def test_a_pushed_task_travels_with_its_receipt(ask):
    def check(asking, service):
        push = asking.check("d-beta", HeldReceipts(), s_u="v1")
        assert set(push.receipts) == {"s/t", "s/u"}
        whole = len(encode_push(push, 10**6)[0])
        for room in range(0, whole + 1, 8):
            value, _ = encode_push(push, room)
            assert len(value) <= room
            if value:
                found = unpacked(value)
                assert all(each.task in found.receipts for each in found.tasks)

    ask(check)


KNOWN = frozenset({"s/a", "s/b", "s/c", "s/d"})


class Standings:
    """A look at a device that says where it stands."""

    def __init__(self, found, profile):
        self.found = found
        self.facts = SimpleNamespace(profile=profile)

    def standings(self, versions):
        return {task: each for task, each in self.found.items() if task in versions}


def due_by_looking_at_each(source, look, pushed):
    """The rule, without a thought of what it costs."""
    profile = look.facts.profile
    held, now_ms, found = profile.receipts, source.now_ms(), set()
    versions = {**profile.tasks, **pushed}
    standings = look.standings(versions)
    for task in (versions.keys() & KNOWN) - {each for each in versions if not versions[each]}:
        standing = standings.get(task, Standing())
        said = held.others.get(task)
        if said is None:
            said = HeldReceipt(held.since_hour)
        is_good = source.keys.has(held.keys) and is_fresh(said.hour, now_ms)
        if task in pushed or not is_good or (said.release, said.group) != standing:
            found.add((task, versions[task], standing))
    return found


TASKS = st.sampled_from(["s/a", "s/b", "s/c", "s/d", "s/unknown"])
STANDINGS = st.sampled_from([Standing(), Standing("r", "new"), Standing("r", "control")])
HOURS = st.sampled_from([0, HOUR, HOUR - RENEWED_MS // HOUR_MS - 2])
HELD = st.builds(lambda hour, standing: HeldReceipt(hour, *standing), HOURS, STANDINGS)


@given(
    tasks=st.dictionaries(TASKS, st.sampled_from(["", "v1", "v2"])),
    others=st.dictionaries(TASKS, HELD),
    since=HOURS,
    has_our_key=st.booleans(),
    found=st.dictionaries(TASKS, STANDINGS.filter(lambda each: each.release_id)),
    pushed=st.dictionaries(TASKS, st.sampled_from(["", "v2"])),
)
def test_receipts_are_due_as_a_look_at_each_says(tasks, others, since, has_our_key, found, pushed):
    source = Keys()
    [key] = source.keys._keys
    held = HeldReceipts(since, others, [key if has_our_key else "0"])
    profile = DeviceProfile("d", tasks=tasks, receipts=held)
    look = Standings(found, profile)
    due = receipts_due(source, KNOWN, look, pushed)
    read = [source.keys.read(token, NOW) for token in due.values()]
    assert [each.task for each in read] == [*due]
    said = {(each.task, each.version, Standing(each.release, each.group)) for each in read}
    assert said == due_by_looking_at_each(source, look, pushed)
