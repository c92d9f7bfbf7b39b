"""The operators' API: who may do what, once, and every request that is none."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import msgspec
import pytest
from starlette.applications import Starlette

from tests.unit.deploy.hasty import hasty
from walle_deploy.cli.release_api import Releases, _in_process
from walle_deploy.identity.signing import SigningKey
from walle_deploy.model.releases import VersionFiles
from walle_deploy.operators.operator import Operator
from walle_deploy.release.audit import read_entry
from walle_deploy.release.commands import ReleaseCommands
from walle_deploy.release.events import Tick
from walle_deploy.release.planning import Plan
from walle_deploy.service import operating
from walle_deploy.service.admission import Admission
from walle_deploy.service.operating import AuditPage, operator_routes
from walle_deploy.service.settings import ServiceSpec
from walle_deploy.store.sqlite import SqliteStore
from walle_stream.errors import (
    ConflictError,
    DeployError,
    ForbiddenError,
    IdentityError,
    IntegrityError,
    RefNotFoundError,
    ReleaseStateError,
    ServiceBusyError,
    SpecFileError,
)

DEFINITION = {
    "apiVersion": "walle/v1",
    "kind": "Release",
    "metadata": {"name": "r"},
    "spec": hasty({"task": "shop/ipv", "version": "v2"}),
}


class Api:
    """The routes with admission, as ``walle serve`` has them."""

    def __init__(self, folder, operators=None, **spec):
        self.key = SigningKey.create("shop")
        self.key.write(folder / "signing.json", folder / "keys.json")
        self.store = SqliteStore(folder / "releases.db")
        if operators is not None:
            operators = {"keys": str(folder / "keys.json"), "issuer": "shop", **operators}
        made = ServiceSpec.model_validate({"operators": operators, **spec}, by_alias=True)
        admission = Admission(made)

        async def prove(headers, _client):
            return await admission.admit_operator(headers, ("192.0.2.1", 7))

        needs_second = operators is not None and bool(made.operators.second_person)
        routes = operator_routes(self.store, prove, needs_second=needs_second)
        self.ask = _in_process(Starlette(routes=routes))
        commands = ReleaseCommands(self.store, "setup")
        for version in ("v1", "v2"):
            commands.publish("shop/ipv", version, VersionFiles(()))

    def of(self, name, role="approver"):
        return Releases(self.ask, lambda: self.key.sign(role, name))

    def raw(self, path, body=b"", method="POST", role="approver"):
        headers = {"authorization": f"Bearer {self.key.sign(role, 'ann')}"}
        return self.ask(method, path, headers, body)

    def log(self):
        with self.store.reading() as reading:
            return [read_entry(each) for each in reading.audit()]

    def begin(self, name="r"):
        ReleaseCommands(self.store, "controller").apply(
            name, lambda look, _: Tick(look.now_ms(), "go", 99, "ok")
        )


@pytest.fixture
def opened(tmp_path):
    made = []

    def open_api(operators=None, **spec):
        made.append(Api(tmp_path, operators, **spec))
        return made[-1]

    yield open_api
    for each in made:
        each.store.close()


@pytest.fixture
def api(opened):
    return opened({})


def create(api, who="ann", role="author", **changes):
    return api.of(who, role).change("/v1/releases", definition=DEFINITION, **changes)


def change(api, who, verb, role="approver", **wanted):
    return api.of(who, role).change(f"/v1/releases/r/{verb}", **wanted)


def test_the_audit_log_says_who_it_was_and_that_he_proved_it(api):
    assert create(api, why="shop day", by="commands 7").revision == 1
    change(api, "bob", "pause", "author", why="lunch", by="bob")
    entries = api.log()[-2:]
    assert [(each.by, each.issuer, each.subject, each.role, each.verified) for each in entries] == [
        ("ann", "shop", "ann", "author", True),
        ("bob", "shop", "bob", "author", True),
    ]
    assert [each.why for each in entries] == ["shop day (--by commands 7)", "lunch"]
    assert api.of("eve", "viewer").look("r").is_paused


ROLES = {
    "viewer": {"look", "dry run"},
    "author": {"look", "dry run", "create", "publish", "pause", "resume", "rollback"},
}
ROLES["approver"] = ROLES["author"] | {"adopt", "advance"}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_do_what_it_is_for_and_nothing_else(api, role):
    version = {"task": "shop/cart", "version": "v1"}
    own = api.of("ann", role)
    acts = {
        "dry run": lambda: own.get("/v1/dry-run", Plan, definition=DEFINITION, stage="gray"),
        "look": lambda: own.get("/v1/releases", list),
        "publish": lambda: own.change("/v1/versions", **version),
        "adopt": lambda: own.change("/v1/versions/stable", **version),
        "create": lambda: own.change("/v1/releases", definition=DEFINITION),
        **{
            verb: lambda verb=verb: own.change(f"/v1/releases/r/{verb}")
            for verb in ("pause", "resume", "advance", "rollback")
        },
    }
    other = api.of("bob")
    done = set()
    for name, act in acts.items():
        try:
            act()
            done.add(name)
        except ForbiddenError:
            if name == "create":
                other.change("/v1/releases", definition=DEFINITION)
            elif name == "publish":
                other.change("/v1/versions", **version)
    assert done == ROLES[role]


def test_without_operators_nobody_sees_or_changes_anything(opened):
    api = opened()
    before = api.log()
    for act in (lambda: create(api), lambda: api.of("ann").get("/v1/releases", list)):
        with pytest.raises(ForbiddenError, match="add spec"):
            act()
    assert api.log() == before


def test_who_proves_nobody_changes_nothing(api, tmp_path):
    thief = SigningKey.create("shop")
    before = api.log()
    for token in (
        api.key.sign("device", "d-1"),
        api.key.sign("relay", "cloud"),
        api.key.sign("approver", "ann", audience="other-service"),
        api.key.sign("approver", "ann", valid_s=-3_600),
        api.key.sign("approver", "controller"),
        thief.sign("approver", "ann"),
        "eyJhbGciOiJub25lIn0.e30.",
        "x" * 6_000,
    ):
        with pytest.raises(IdentityError):
            Releases(api.ask, lambda token=token: token).change(
                "/v1/releases", definition=DEFINITION
            )
    with pytest.raises(IdentityError, match="no token"):
        Releases(api.ask, None).get("/v1/releases", list)
    assert api.log() == before


def test_an_address_that_proves_nobody_again_and_again_has_to_wait(opened):
    budgets = {"address": {"checks": 5}, "burst": "1s"}
    api = opened({}, budgets=budgets)
    thief = Releases(api.ask, None)
    with pytest.raises(IdentityError):
        thief.get("/v1/releases", list)
    with pytest.raises(ServiceBusyError):
        thief.get("/v1/releases", list)


SECOND = {"secondPerson": True}


def test_a_release_begins_when_another_person_has_approved_it(opened):
    api = opened(SECOND)
    made = create(api, role="approver")
    assert made.can == ("approve", "rollback")
    assert "another person to approve it" in str(made.waits_for)
    api.begin()
    assert api.of("ann").look("r").stage == "created"
    with pytest.raises(ForbiddenError, match="yours: another person"):
        change(api, "ann", "approve")
    with pytest.raises(ReleaseStateError, match="waits for another person"):
        change(api, "ann", "advance")
    with pytest.raises(ForbiddenError, match="needs the role approver"):
        change(api, "bob", "approve", "author")
    assert change(api, "bob", "approve", why="looks good").revision == 2
    api.begin()
    assert api.of("ann").look("r").stage == "gray"
    last = [(each.by, each.action) for each in api.log()[-3:]]
    assert last == [("ann", "create"), ("bob", "approve"), ("controller", "begin")]
    # a way around it is none
    with pytest.raises(ForbiddenError, match="no other person approved"):
        api.of("ann").change("/v1/versions/stable", task="shop/ipv", version="v1")


def test_of_two_approvers_at_once_one_is_told_of_the_other(opened):
    api = opened(SECOND)
    create(api)

    def approve(name):
        try:
            return change(api, name, "approve").revision
        except ConflictError as error:
            return error.message

    with ThreadPoolExecutor(2) as both:
        done = list(both.map(approve, ("bob", "eve")))
    assert 2 in done
    (refused,) = [each for each in done if each != 2]
    assert "was approved already" in refused
    assert [each.action for each in api.log()].count("approve") == 1


def test_without_that_policy_there_is_nothing_to_approve(api):
    create(api)
    with pytest.raises(ReleaseStateError, match="needs no approval"):
        change(api, "bob", "approve")


def test_a_request_that_comes_again_is_not_done_again(api):
    definition = json.dumps({"definition": DEFINITION, "request": "a"}).encode()
    first = api.raw("/v1/releases", definition)
    assert api.raw("/v1/releases", definition) == first
    api.begin()
    again = b'{"request":"b"}'
    first = api.raw("/v1/releases/r/advance", again)
    assert first[0] == 200
    assert api.raw("/v1/releases/r/advance", again) == first
    status, body = api.raw("/v1/releases/r/advance", b'{"request":"c"}')
    assert (status, json.loads(body)["kind"]) == (409, "ConflictError")
    assert [each.action for each in api.log()].count("advance") == 1


USED = [
    ("/v1/releases/r/pause", "ann", {"why": "lunch"}),
    ("/v1/releases/r/pause", "bob", {}),
    ("/v1/releases/r/pause", "ann", {"revision": 1}),
    ("/v1/releases/r/rollback", "ann", {}),
    ("/v1/releases/q/pause", "ann", {}),
    ("/v1/releases", "ann", {"definition": DEFINITION}),
    ("/v1/versions", "ann", {"task": "shop/cart", "version": "v1"}),
    ("/v1/versions/stable", "ann", {"task": "shop/ipv", "version": "v1"}),
]


@pytest.mark.parametrize(("path", "who", "wanted"), USED)
def test_a_request_id_is_good_for_one_change(api, path, who, wanted):
    def ask(path, who, **wanted):
        token = {"authorization": f"Bearer {api.key.sign('approver', who)}"}
        status, body = api.ask("POST", path, token, json.dumps(wanted).encode())
        return status, json.loads(body)

    create(api)
    other = {
        **DEFINITION,
        "metadata": {"name": "q"},
        "spec": DEFINITION["spec"] | {"version": "v1"},
    }
    assert ask("/v1/releases", "ann", definition=other, supersede=True)[0] == 200
    done = ask("/v1/releases/q/pause", "bob", request="id", why="x")
    assert done[0] == 200
    before = api.log()
    assert ask("/v1/releases/q/pause", "bob", request="id", why="x") == done
    status, said = ask(path, who, request="id", **wanted)
    assert (status, said["kind"]) == (409, "ConflictError")
    assert "'id' was used for another change" in said["error"]
    assert api.log() == before


def test_a_version_is_published_and_adopted_once_for_a_request(api):
    for path in ("/v1/versions", "/v1/versions/stable"):
        body = json.dumps({"task": "shop/cart", "version": "v1", "request": path}).encode()
        assert [api.raw(path, body) for _ in range(2)] == [(200, b"null")] * 2
    assert [each.action for each in api.log()[-2:]] == ["publish", "adopt"]


def test_a_request_that_was_refused_used_no_id(api):
    refused = b'{"request":"id"}'
    assert api.raw("/v1/releases/r/pause", refused)[0] == 404
    create(api)
    assert api.raw("/v1/releases/r/pause", refused)[0] == 200


def test_somebody_who_was_first_is_told_of(api):
    create(api)
    change(api, "bob", "pause", revision=1)
    with pytest.raises(ConflictError, match="at revision 2, you saw 1"):
        change(api, "ann", "rollback", revision=1)


HOSTILE = [
    "<script>alert(1)</script>",
    "'; DROP TABLE walle_audit; --",
    "a\x1b[2Jb",
    "\x00",
    "../../etc/passwd",
    "a/b?c#d",
    "%2e%2e",
    "x" * 3_000,
    "\u202e",
    "\ud83d",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_are_names_of_nothing(api, text):
    create(api)
    before = len(api.log())
    own = api.of("ann")
    with pytest.raises(DeployError):
        own.look(text.encode("utf-8", "replace").decode())
    quoted = json.dumps(text).encode()
    for path, field in (
        ("/v1/releases/r/pause", b"request"),
        ("/v1/releases/r/pause", b"nothing"),
        ("/v1/versions", b"task"),
        ("/v1/versions", b"version"),
        ("/v1/versions/stable", b"task"),
    ):
        body = b'{"task":"shop/ipv","version":"v9",' + b'"%s":%s}' % (field, quoted)
        if path.endswith("pause"):
            body = b'{"%s":%s}' % (field, quoted)
        status, said = api.raw(path, body)
        if field == b"request" and status == 200:
            assert text.isprintable()
            api.of("ann").change("/v1/releases/r/resume")
            before += 2
        else:
            assert status in {400, 404}, said
    for place in (("metadata", "name"), ("spec", "task"), ("spec", "version")):
        definition = json.loads(json.dumps(DEFINITION))
        definition[place[0]][place[1]] = text
        status, said = api.raw("/v1/releases", json.dumps({"definition": definition}).encode())
        assert status in {400, 404}, said
        assert "\n" not in json.loads(said)["error"]
    assert len(api.log()) == before


def test_a_reason_with_html_stays_text_and_one_with_control_characters_is_refused(api):
    create(api, why="<b>'; DROP TABLE x; --</b>")
    assert api.log()[-1].why == "<b>'; DROP TABLE x; --</b>"
    for field in ("why", "by"):
        with pytest.raises(SpecFileError, match="control characters"):
            change(api, "ann", "pause", **{field: "a\x1b[2Jb"})


@pytest.mark.parametrize(
    ("path", "size", "status"),
    [
        ("/v1/releases/r/pause", 65_537, 413),
        ("/v1/releases", 2**22 + 1, 413),
        ("/v1/releases", 2**22, 400),
    ],
)
def test_a_body_that_is_too_long_is_refused(api, path, size, status):
    assert api.raw(path, b" " * size)[0] == status


@pytest.mark.parametrize(
    "body", [b"[]", b"{", b"\xff", b"[" * 50_000, b'{"revision":"1"}', b"null"]
)
def test_a_body_that_is_none_is_refused(api, body):
    status, said = api.raw("/v1/releases/r/pause", body)
    assert (status, json.loads(said)["kind"]) == (400, "SpecFileError")


def test_a_damaged_definition_names_the_place(api):
    for wrong in ({}, {**DEFINITION, "spec": {"task": "shop/ipv"}}, {**DEFINITION, "x": 1}):
        with pytest.raises(SpecFileError, match="the release: "):
            api.of("ann").change("/v1/releases", definition=wrong)
    with pytest.raises(RefNotFoundError, match="there is no release"):
        api.of("ann").look("none")


def test_a_dry_run_is_of_releases_that_are_there_and_changes_nothing(api):
    create(api)
    before = api.log()
    other = json.loads(json.dumps(DEFINITION).replace('"r"', '"q"'))
    own = api.of("eve", "viewer")
    found = own.get("/v1/dry-run", Plan, definition=other, stage="gray", percent=5.0)
    assert [(each.release_id, each.percent) for each in found.table.releases] == [("q", 5.0)]
    assert "'r' of shop/ipv@v2 is in progress" in found.notes[0]
    assert own.get("/v1/dry-run", Plan, stage="full").table.releases == ()
    for wrong in (b'{"percent":101}', b'{"stage":"done"}', b'{"definition":{"kind":"x"}}', b"["):
        assert api.raw("/v1/dry-run", wrong)[0] == 400
    assert api.log() == before


def test_an_altered_log_is_not_given_out(api):
    create(api)
    with api.store.writing() as writing:
        writing._execute("UPDATE walle_audit SET entry = '{}' WHERE number = 1", ())
    with pytest.raises(IntegrityError):
        api.of("ann").get("/v1/audit", msgspec.Raw)


def test_the_audit_log_comes_in_pages_that_follow_each_other(api, monkeypatch):
    monkeypatch.setattr(operating, "_PAGE", 3)
    create(api)
    for verb in ("pause", "resume") * 3:
        change(api, "ann", verb)
    own, numbers, page = api.of("eve", "viewer"), [], None
    while page is None or page.kept is None:
        page = own.get(f"/v1/audit?after={len(numbers)}&limit=9", AuditPage)
        assert 0 < len(page.entries) <= 3
        numbers += [each.number for each in page.entries]
    assert numbers == [*range(1, len(api.log()) + 1)]
    assert [[*page.kept[each]] for each in ("release", "version")] == [
        ["r"],
        ["shop/ipv@v1", "shop/ipv@v2"],
    ]
    assert len(own.get("/v1/audit?limit=2", AuditPage).entries) == 2
    assert own.get(f"/v1/audit?after={page.head.number}", AuditPage).entries == []
    for wrong in ("after=-1", "after=x", "limit=0", "after=999", f"after={10**40}"):
        with pytest.raises(SpecFileError):
            own.get(f"/v1/audit?{wrong}", AuditPage)


@pytest.mark.parametrize("number", [1, 3, 4, 7])
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE walle_audit SET entry = '{}' WHERE number = ?",
        "DELETE FROM walle_audit WHERE number = ?",
    ],
)
def test_an_altered_entry_is_in_no_page(api, monkeypatch, number, damage):
    monkeypatch.setattr(operating, "_PAGE", 3)
    create(api)
    for verb in ("pause", "resume") * 3:
        change(api, "ann", verb)
    with api.store.writing() as writing:
        writing._execute(damage, (number,))
    sound = []
    for after in (0, 3, 6):
        with suppress(IntegrityError):
            sound += api.of("ann").get(f"/v1/audit?after={after}", AuditPage).entries
    assert number not in [each.number for each in sound]
    assert len(sound) in {3, 6}


def test_a_client_that_hangs_up_changes_nothing(api):
    async def call():
        async def receive():
            return {"type": "http.disconnect"}

        async def send(message):
            said.append(message)

        said = []
        scope = {"type": "http", "method": "POST", "path": "/v1/releases", "query_string": b""}
        scope |= {"headers": [], "client": None}
        routes = operator_routes(api.store, lambda *_: asyncio.sleep(0, ann))
        await Starlette(routes=routes)(scope, receive, send)
        return said[0]["status"]

    ann = Operator("ann", "approver")
    before = api.log()
    assert asyncio.run(call()) == 400
    assert api.log() == before
