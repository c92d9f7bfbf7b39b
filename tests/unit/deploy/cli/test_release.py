import argparse
import io
import json
from contextlib import redirect_stdout
from functools import partial

import pytest

from tests.unit.deploy.monitoring.reporting import frame, report
from tests.unit.deploy.release.groups import both
from walle_deploy.assembly.operating import demand_operators
from walle_deploy.cli.release import add
from walle_deploy.cli.release_api import Releases
from walle_deploy.identity.signing import SigningKey
from walle_deploy.model.releases import VersionFiles
from walle_deploy.monitoring.monitor import Monitor
from walle_deploy.operators.settings import OperatorsSpec
from walle_deploy.release.commands import ReleaseCommands
from walle_deploy.release.events import Tick
from walle_deploy.release.limits import Gates
from walle_deploy.release.memory import Memory, look
from walle_deploy.release.stored_health import put_memory
from walle_deploy.service import operating
from walle_deploy.store.receipt_keys import StoredReceiptKeys
from walle_deploy.store.sqlite import SqliteStore
from walle_stream.errors import (
    ConflictError,
    ForbiddenError,
    IdentityError,
    IntegrityError,
    RefNotFoundError,
    ReleaseStateError,
    ServiceUnreachableError,
    SpecFileError,
)

YAML = """
apiVersion: walle/v1
kind: Release
metadata: {name: ipv-v2}
spec:
  task: shop/ipv
  version: v2
  gray: [{percent: 20, minDuration: 1h, minDevices: 50}]
"""


class Command:
    """``walle release`` over a store of its own."""

    def __init__(self, folder):
        self.file, self.path = folder / "release.yaml", folder / "releases.db"
        self.file.write_text(YAML)
        self.store = SqliteStore(self.path)
        self.commands = ReleaseCommands(self.store, "ann")
        for version in ("v1", "v2"):
            self.commands.publish("shop/ipv", version, VersionFiles(()))
        self.commands.adopt("shop/ipv", "v1")

    def __call__(self, verb, *arguments):
        parser = argparse.ArgumentParser()
        add(parser.add_subparsers())
        texts = ["release", verb, *map(str, arguments), "--store", str(self.path)]
        options = parser.parse_args(texts)
        with redirect_stdout(io.StringIO()) as out:
            self.code = options.run(options)
        return out.getvalue()

    def json(self, *arguments):
        return [json.loads(line) for line in self(*arguments, "--json").splitlines()]


@pytest.fixture
def release(tmp_path):
    command = Command(tmp_path)
    yield command
    command.store.close()


def go(look, _, later_ms=0):
    return Tick(look.now_ms() + later_ms, "go", 99, "ok")


def test_a_release_is_created_paused_resumed_and_rolled_back(release):
    assert release("create", release.file) == "release ipv-v2: shop/ipv@v2, created (revision 1)\n"
    release.commands.apply("ipv-v2", go)
    assert "gray, paused" in release("pause", "ipv-v2", "--by", "bob", "--why", "lunch")
    assert release.json("resume", "ipv-v2")[0]["can"] == ["pause", "advance", "rollback"]
    assert "rolled back (revision 5)" in release("rollback", "ipv-v2")


def test_what_devices_have_from_before_is_adopted(release):
    release.commands.publish("shop/cart", "v7", VersionFiles(()))
    for wrong, problem in (("shop/cart", "no version"), ("shop/cart@v8", "not published")):
        with pytest.raises(RefNotFoundError, match=problem):
            release("adopt", wrong)
    assert release("adopt", "shop/cart@v7", "--by", "bob").startswith("shop/cart: v7 is stable")
    assert json.loads(release("audit", "--json").splitlines()[-1])["action"] == "adopt"
    with pytest.raises(ConflictError, match="already has a stable version"):
        release.json("adopt", "shop/cart@v7")


def test_a_status_says_where_it_stands_and_what_it_waits_for(release):
    assert release("status") == "no releases yet\n"
    release("create", release.file)
    release.commands.apply("ipv-v2", go)
    with release.store.writing() as writing:
        failing = {"devices": 10, "failing_devices": 1, "runs": 200, "failures": 9}
        failing["device_minutes"] = 14
        seen = both(failing, {"devices": 190})
        put_memory(writing, "ipv-v2", look(Memory(), Gates(), seen, 1, control_percent=50.0))
    names = [f"d{number}" for number in range(200)]
    first, then = (
        report([(name, 1, {}) for name in names]),
        report([(n, 1, {}) for n in names[:10]], "v2"),
    )
    Monitor(release.store).take([frame(1, first), frame(2, then)])
    text = release("status", "ipv-v2")
    for part in (
        "20 % of the devices",
        "s to pass and 40 more devices to report",
        "'walle release advance ipv-v2' goes on",
        "because none drives releases now (walle serve)",
        "v1: 190, v2: 10",
        "1 of 10 devices of v2, 0 of 190 devices of v1 beside",
        "1 more would stop it",
        "new: 10 devices, 10 device-minutes",
        "against tolerated",
    ):
        assert part in " ".join(text.split())
    assert "ipv-v2" in release("status")
    found = release.json("status", "ipv-v2")[0]
    assert (found["stage"], found["percent"], found["known_devices"]) == (
        "gray",
        20,
        {"v1": 190, "v2": 10},
    )
    assert found["waits_for"][2:] == [
        (
            "40 more devices to report runs (a share of a small fleet may hold none: "
            "'walle release advance ipv-v2' goes on without them)"
        ),
        "its devices to run in 3.5 minutes each (so far 1.4)",
    ]
    assert [each["gate"] for each in found["gates"]] == ["failures", "crashes", "latency", "output"]
    failures = found["gates"][0]
    assert (failures["decides"], failures["new"]["affected"], failures["control"]["devices"]) == (
        1,
        1,
        190,
    )
    assert failures["new"]["per_run"]["low"] < 9 / 200 < failures["new"]["per_run"]["high"]
    assert failures["evidence"] == min(failures["beyond_tolerated"], failures["beyond_control"])


def test_a_status_says_that_its_evidence_may_be_from_anybody(release):
    release("create", release.file)
    assert "unauthenticated" not in release("status") + release("status", "ipv-v2")
    assert not release.json("status", "ipv-v2")[0]["is_unauthenticated"]
    StoredReceiptKeys(release.store, is_open=True).refresh()
    for shown in (release("status"), release("status", "ipv-v2")):
        assert "unauthenticated" in shown
    release("rollback", "ipv-v2")  # of one that ended, too
    assert "unauthenticated" in release("status")
    for arguments in ((), ("ipv-v2",)):
        assert release.json("status", *arguments)[0]["is_unauthenticated"]


def test_a_watch_ends_with_the_release(release, monkeypatch):
    release("create", release.file)
    release.commands.apply("ipv-v2", go)
    # what happens between two looks happens in the wait for the next one
    changes = iter(
        [
            lambda: release.commands.pause("ipv-v2"),
            lambda: release.commands.roll_back("ipv-v2", "no"),
        ]
    )
    monkeypatch.setattr("walle_deploy.cli.release_verbs.time.sleep", lambda _: next(changes)())
    with pytest.raises(ReleaseStateError, match="'ipv-v2' is rolled back: no") as caught:
        release.json("watch", "ipv-v2")
    assert caught.value.exit_code == 16


def test_a_watch_goes_on_when_the_store_answers_again(release, monkeypatch, capsys):
    release("create", release.file)
    answers = iter([None, "away", "away", "rolled back"])
    real = Releases.look

    def look(releases, name):
        match next(answers):
            case "away":
                raise ServiceUnreachableError("the database does not answer")
            case "rolled back":
                release.commands.roll_back("ipv-v2", "no")
        return real(releases, name)

    monkeypatch.setattr(Releases, "look", look)
    monkeypatch.setattr("walle_deploy.cli.release_verbs.time.sleep", lambda _: None)
    with pytest.raises(ReleaseStateError, match="stopped: no"):
        release("watch", "ipv-v2")
    assert capsys.readouterr().err == (
        "walle: the database does not answer; watching continues when it answers\n"
    )


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_watch_shows_each_step_until_all_devices_have_it(release, monkeypatch, is_terminal):
    if is_terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    release("create", release.file)

    hours = iter(range(2, 9, 2))

    def step(_):
        later_ms = next(hours) * 3_600_000
        release.commands.apply("ipv-v2", partial(go, later_ms=later_ms))

    monkeypatch.setattr("walle_deploy.cli.release_verbs.time.sleep", step)
    shown = release("watch", "ipv-v2")
    assert "done, 100 % of the devices, as the stable version" in shown
    if not is_terminal:
        assert shown.endswith("\n")
        begun = [line[22:].split(", ")[0] for line in shown.splitlines()[:4]]
        assert begun == ["created", "gray", "full", "done"]
    assert "100 %" in release("status")
    assert "-> done 100 %, as the stable version" in release("audit", "ipv-v2")
    assert release.code == 0


def test_the_audit_log_is_checked_and_printed(release):
    release("create", release.file, "--why", "shop day")
    head = release("audit", "--head").strip()
    release("pause", "ipv-v2")
    text = release("audit", "--expect", head)
    assert "create ipv-v2 -> created 0 %: shop day" in text
    assert "the chain holds: 5 entries" in text
    assert [each["action"] for each in release.json("audit", "ipv-v2")] == ["create", "pause"]
    assert release.json("audit", "--head")[0]["number"] == 5
    with pytest.raises(IntegrityError, match="entry 4 is not the one"):
        release("audit", "--expect", head[:-1] + "x")


def test_the_audit_log_is_followed_over_its_pages(release, monkeypatch):
    release("create", release.file)
    whole = release("audit", "--json")
    monkeypatch.setattr(operating, "_PAGE", 1)
    assert release("audit", "--json") == whole
    with release.store.writing() as writing:
        writing._execute("UPDATE walle_releases SET version = 'v1'", ())
    with pytest.raises(IntegrityError, match="release 'ipv-v2' differs from the log"):
        release("audit")


def test_a_rewritten_log_lacks_the_head_that_was_kept(release, tmp_path):
    SigningKey.create("shop").write(tmp_path / "signing.json", tmp_path / "keys.json")
    release("create", release.file)
    kept = tmp_path / "head.jwt"
    kept.write_text(release("audit", "--head", "--sign", tmp_path / "signing.json"))
    against = ("audit", "--against", kept, "--keys", tmp_path / "keys.json")
    release("pause", "ipv-v2")
    assert release(*against) == "the chain contains the saved head, entry 4\n"
    with pytest.raises(SpecFileError, match="needs --keys"):
        release("audit", "--against", kept)
    release.store.close()
    for each in tmp_path.glob("releases.db*"):
        each.unlink()
    again = Command(tmp_path)
    try:
        again("create", again.file, "--why", "made anew")
        with pytest.raises(IntegrityError, match="entry 4 is not the one") as caught:
            again(*against)
    finally:
        again.store.close()
    assert caught.value.exit_code == 17


def test_a_name_that_nobody_proved_is_said_to_be_that(release):
    release("create", release.file, "--by", "bob", "--why", "one\nline <b>é</b>'; --")
    entry = release.json("audit", "ipv-v2")[0]
    assert (entry["by"], entry["verified"]) == ("bob", False)
    assert entry["why"] == "one line <b>é</b>'; --"
    with pytest.raises(IdentityError, match="reserved for the controller"):
        release("pause", "ipv-v2", "--by", "controller")
    with pytest.raises(SpecFileError, match="control characters"):
        release("pause", "ipv-v2", "--by", "a\x1b[2J")
    with pytest.raises(RefNotFoundError, match="there is no release"):
        release("pause", "none/../x?y#z")


def test_a_store_that_once_had_operators_asks_for_them(release, tmp_path):
    key = SigningKey.create("shop")
    key.write(tmp_path / "signing.json", tmp_path / "keys.json")
    spec = {"keys": tmp_path / "keys.json", "issuer": "shop", "skew": "2m"}
    demand_operators(release.store, OperatorsSpec.model_validate(spec, by_alias=True))
    for _ in range(2):  # the second time it is known
        demand_operators(release.store, OperatorsSpec.model_validate(spec, by_alias=True))
    with pytest.raises(IdentityError, match="no token"):
        release("create", release.file)
    own = ("--operator-key", tmp_path / "signing.json", "--by", "ann")
    assert "created" in release("create", release.file, *own)
    (tmp_path / "viewer").write_text(key.sign("viewer", "eve"))
    with pytest.raises(ForbiddenError, match="needs the role author"):
        release("pause", "ipv-v2", "--token", tmp_path / "viewer")
    entry = release.json("audit", "ipv-v2", *own[:2])[0]
    assert (entry["by"], entry["verified"], entry["issuer"]) == ("ann", True, "shop")
    with release.store.writing() as writing:
        writing.put_snapshot("operators", "operators", b"{}")
    with pytest.raises(IntegrityError, match="the operators' set-up"):
        release("status", *own[:2])


def test_two_operators_are_told_of_each_other(release):
    release("create", release.file)
    release("pause", "ipv-v2", "--revision", 1)
    with pytest.raises(ConflictError, match="at revision 2, you saw 1"):
        release("rollback", "ipv-v2", "--revision", 1)


def test_the_store_is_named_by_the_environment(release, monkeypatch):
    monkeypatch.setenv("WALLE_RELEASES", str(release.path))
    parser = argparse.ArgumentParser()
    add(parser.add_subparsers())
    assert parser.parse_args(["release", "status"]).store == str(release.path)
    monkeypatch.setenv("WALLE_RELEASES", "")
    parser = argparse.ArgumentParser()
    add(parser.add_subparsers())
    options = parser.parse_args(["release", "status"])
    with pytest.raises(ServiceUnreachableError, match="give --store, or set WALLE_RELEASES"):
        options.run(options)


@pytest.mark.parametrize("arguments", [("watch", "r", "--every", "0"), ("audit", "--expect", "7")])
def test_wrong_usage_is_refused(release, arguments, capsys):
    with pytest.raises(SystemExit):
        release(*arguments)
    assert "is not" in capsys.readouterr().err


def test_a_person_goes_on_where_a_share_holds_no_device(release):
    release("create", release.file)
    release.commands.apply("ipv-v2", go)
    said = release("advance", "ipv-v2", "--by", "bob", "--why", "nobody in it", "--revision", 2)
    assert said == "release ipv-v2: shop/ipv@v2, full (revision 3)\n"
    assert "bob (unverified)  advance ipv-v2 -> full 99 %: nobody in it" in release(
        "audit", "ipv-v2"
    )
    release("pause", "ipv-v2")
    with pytest.raises(ReleaseStateError, match="resume it, then advance it"):
        release("advance", "ipv-v2", "--revision", 4)


def test_two_who_advance_at_once_mean_one_step(release):
    release("create", release.file)
    release.commands.apply("ipv-v2", go)
    assert "full (revision 3)" in release("advance", "ipv-v2", "--by", "bob")
    with pytest.raises(
        ConflictError, match=r"bob advanced .* s ago \(full, 99 %\): .* --revision 3 if"
    ):
        release("advance", "ipv-v2", "--by", "ann")
    release("pause", "ipv-v2")
    release("resume", "ipv-v2")
    with pytest.raises(ConflictError, match=r"bob advanced .*--revision 5 if"):
        release("advance", "ipv-v2", "--by", "ann")
    assert "done (revision 6)" in release("advance", "ipv-v2", "--revision", 5)


def test_it_is_said_that_no_service_takes_releases_on_until_one_does(release):
    release("create", release.file)
    assert "walle serve" in release.json("status", "ipv-v2")[0]["waits_for"][0]
    with release.store.writing() as writing:
        assert writing.take_lease("controller", "one", 600_000)
    assert "walle serve" not in str(release.json("status", "ipv-v2")[0]["waits_for"])
    with release.store.writing() as writing:
        assert writing.take_lease("controller", "one", 0)
    assert "walle serve" in release("status", "ipv-v2")
    release("rollback", "ipv-v2")
    assert release.json("status", "ipv-v2")[0]["waits_for"] == []


KINDS = """
apiVersion: walle/v1
kind: DeviceKinds
metadata: {name: k}
spec:
  kinds:
  - {name: low, events: own.jsonl}
"""
EVENT = (
    '{"device_id":"d","id":"c","kind":"click","page_id":"p","page_instance":"p1",'
    '"event_time_ms":1,"ingest_time_ms":1}\n'
)


@pytest.mark.parametrize(
    ("missing", "problem"),
    [
        (
            "kinds.yaml",
            r"release.yaml:7:23: spec.simulation.kinds: there is no file '.*kinds.yaml'",
        ),
        ("day.jsonl", r"release.yaml:7:43: spec.simulation.events: there is no file '.*day.jsonl'"),
        ("own.jsonl", r"kinds.yaml:6:25: spec.kinds\[0\].events: there is no file '.*own.jsonl'"),
    ],
)
def test_a_simulation_of_files_that_are_not_there_does_not_begin(
    release, tmp_path, missing, problem
):
    step = "  simulation: {kinds: kinds.yaml, events: day.jsonl}\n"
    release.file.write_text(YAML.lstrip().replace("  gray", step + "  gray"))
    for name, text in (("kinds.yaml", KINDS), ("day.jsonl", EVENT), ("own.jsonl", EVENT)):
        if name != missing:
            (tmp_path / name).write_text(text.lstrip())
    with pytest.raises(SpecFileError, match=problem) as caught:
        release("create", release.file)
    assert caught.value.exit_code == 3
    (tmp_path / missing).write_text("nonsense\n")
    with pytest.raises(SpecFileError, match=rf"{missing}:1"):
        release("create", release.file)
    assert release("status") == "no releases yet\n"
    (tmp_path / missing).write_text((KINDS if missing == "kinds.yaml" else EVENT).lstrip())
    assert "created" in release("create", release.file)
