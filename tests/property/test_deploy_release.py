"""Releases under any events of two operators and a controller; the audit log under any change."""

import tempfile
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.deploy.hasty import hasty
from walle_deploy.model.releases import VersionFiles
from walle_deploy.release.audit import read_entry
from walle_deploy.release.commands import ReleaseCommands, read_state
from walle_deploy.release.events import (
    Advanced,
    Approved,
    Paused,
    Resumed,
    RolledBack,
    Simulated,
    Superseded,
    Tick,
)
from walle_deploy.release.machine import advance
from walle_deploy.release.model import Release
from walle_deploy.release.state import OFFERED, ReleaseState, offer_of
from walle_deploy.release.verification import verify, verify_chain
from walle_deploy.store.sqlite import SqliteStore
from walle_stream.errors import (
    ConflictError,
    ForbiddenError,
    IntegrityError,
    ReleaseStateError,
)

TASK = "shop/ipv"
TIMES = st.integers(0, 100)
TICKS = st.builds(
    Tick, TIMES, st.sampled_from(["go", "go", "go", "wait", "stop"]), st.integers(0, 3)
)
EVENTS = st.one_of(
    TICKS,
    TICKS,
    TICKS,
    st.builds(Simulated, TIMES, st.booleans(), st.just("")),
    st.builds(Paused, TIMES),
    st.builds(Resumed, TIMES),
    st.builds(Advanced, TIMES, st.sampled_from(["go", "wait", "stop"])),
    st.builds(Approved, TIMES, st.sampled_from(["ann", "bob"])),
    st.builds(RolledBack, TIMES),
    st.builds(Superseded, TIMES),
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "simulation": st.just({"kinds": "k", "events": "e"}),
        "beta": st.just({"devices": ["a"], "minDevices": 2}),
        "gray": st.lists(st.integers(1, 100), unique=True, max_size=4).map(
            lambda found: [
                {"percent": each, "minDuration": "5ms", "minExposure": 0} for each in sorted(found)
            ]
        ),
        "policy": st.sampled_from([{}, {"os": "x"}]),
        "onStop": st.sampled_from(["rollback", "pause"]),
    },
)
ENDED = {"stopped", "rolled_back", "superseded"}


def definition(name, spec, version="v2"):
    head = {"apiVersion": "walle/v1", "kind": "Release", "metadata": {"name": name}}
    return {**head, "spec": hasty({"task": TASK, "version": version, **spec})}


@given(SPECS, st.lists(EVENTS, max_size=30), st.sampled_from(["", "v1"]))
@settings(max_examples=80)
def test_a_release_never_gives_less_until_it_gives_nothing_for_good(spec, events, previous):
    state = ReleaseState(definition=definition("r", spec), previous=previous)
    for event in events:
        try:
            change = advance(state, event)
        except ReleaseStateError:
            continue
        if change is None:
            continue
        before, state = state, change.state
        assert change.action
        offer = offer_of(state)
        assert (offer is not None and offer.stage != "withdrawn") == state.is_offered
        if before.stage in ENDED:
            pytest.fail("a release that ended changed")
        if isinstance(event, Advanced):
            assert before.paused_ms is None
            assert (change.action == "advance") == (
                event.judgement != "stop" or before.stage not in OFFERED
            )
            assert before.stage != "simulation" or before.is_simulated
        if state.stage in ENDED:
            had_it = before.offered_ms > 0
            is_lost = had_it and (before.is_open or state.stage == "rolled_back")
            assert (offer is not None) == is_lost
            assert (state.percent, state.since_ms) == (0, event.at_ms)
        elif state.stage == "done":
            assert state.is_offered == bool(spec.get("policy"))
            assert state.percent == 100
        else:
            assert state.percent >= before.percent
        # that is the affair of devices that have it: others keep theirs
        if change.stable is not None:
            is_back = before.stage == "done" and state.stage == "rolled_back"
            assert change.stable == (previous if is_back else "v2")


@given(SPECS, st.lists(EVENTS, max_size=30))
@settings(max_examples=80)
def test_nothing_begins_that_no_other_person_approved(spec, events):
    state, approved_by = ReleaseState(definition=definition("r", spec), author="ann"), []
    for event in events:
        with suppress(ConflictError, ForbiddenError, ReleaseStateError):
            change = advance(state, event)
            if isinstance(event, Approved):
                approved_by.append(event.by)
            state = change.state if change else state
        if not approved_by:
            assert state.stage in {"created", "stopped", "superseded"}
            assert offer_of(state) is None
    assert approved_by in ([], ["bob"])


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["create", "supersede", "go", "go", "go", "stop", "pause", "resume", "advance", "back"]
        ),
        st.integers(0, 2),
    ),
    max_size=14,
)


@given(STEPS)
@settings(max_examples=25)
def test_the_store_holds_one_release_in_progress_and_one_entry_for_each_change(steps):
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "r.db")
        commands = ReleaseCommands(store, "ann")
        for version in ("v1", "v2", "v3"):
            commands.publish(TASK, version, VersionFiles(()))
        for action, number in steps:
            with suppress(ConflictError, ReleaseStateError, LookupError):
                do(commands, action, f"r{number}", f"v{number + 1}")
            check(store)
        store.close()


def do(commands, action, name, version):
    match action:
        case "create" | "supersede":
            release = Release.model_validate(definition(name, {"gray": [{"percent": 5}]}, version))
            commands.create(release, supersede=action == "supersede")
        case "pause":
            commands.pause(name)
        case "resume":
            commands.resume(name)
        case "advance":
            commands.advance(name)
        case "back":
            commands.roll_back(name)
        case _:
            commands.apply(name, lambda look, _: Tick(look.now_ms(), action, 5))


def check(store):
    with store.reading() as reading:
        verify(reading)
        releases, entries = reading.releases(), [read_entry(each) for each in reading.audit()]
        table = reading.table()
    assert sum(each.is_open for each in releases) <= 1
    changes = [(each.release, each.revision) for each in entries if each.release]
    assert sorted(changes) == sorted(
        (each.release_id, revision) for each in releases for revision in range(1, each.revision + 1)
    )
    over = {each.release_id for each in releases if read_state(each).stage in ENDED}
    assert not over & {each.release_id for each in table.releases}


@pytest.fixture(scope="module")
def log():
    """A log of a few entries with its head."""
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "r.db")
        commands = ReleaseCommands(store, "ann")
        commands.publish(TASK, "v2", VersionFiles(()))
        commands.create(Release.model_validate(definition("r", {})), "why not: é")
        commands.pause("r")
        with store.reading() as reading:
            found = list(reading.audit()), reading.audit_head()
        store.close()
    return found


@given(st.data())
@settings(max_examples=150)
def test_any_changed_byte_of_the_log_is_found(log, data):
    entries, head = log
    index = data.draw(st.integers(0, len(entries) - 1))
    field = data.draw(st.sampled_from(["text", "hash", "number", "release_id"]))
    old = getattr(entries[index], field)
    if field == "number":
        new = data.draw(st.integers(-1, 5).filter(lambda each: each != old))
    else:
        place, raw = data.draw(st.integers(0, len(old))), data.draw(st.characters())
        kept = data.draw(st.booleans())
        new = old[:place] + raw + old[place + (not kept) :]
    if new == old:
        return
    changed = [*entries]
    changed[index] = msgspec.structs.replace(entries[index], **{field: new})
    with pytest.raises(IntegrityError):
        verify_chain(changed, head)


@given(st.permutations(range(3)), st.integers(0, 3))
def test_any_other_order_or_end_of_the_log_is_found(log, order, count):
    entries, head = log
    changed = [entries[each] for each in order][:count]
    if changed == entries:
        return
    with pytest.raises(IntegrityError):
        verify_chain(changed, head)
