import asyncio
from base64 import urlsafe_b64decode
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec
import pytest
from pydantic import ValidationError
from starlette.applications import Starlette

from tests.unit.deploy.monitoring.reporting import frame, report
from tests.unit.deploy.page.showing import Operator, ask, definition, opened, published
from walle_deploy.assembly.operating import local_app
from walle_deploy.assembly.serving import _stop, check_parts, open_parts, open_service
from walle_deploy.cli.release_api import Releases, _in_process
from walle_deploy.identity.signing import SigningKey
from walle_deploy.model.held import HeldReceipts
from walle_deploy.model.profile import DeviceProfile, encode_profile
from walle_deploy.model.pushes import Push, PushedFile
from walle_deploy.model.receipts import Receipt
from walle_deploy.model.releases import VersionFiles
from walle_deploy.release.audit import read_entry
from walle_deploy.release.commands import ReleaseCommands
from walle_deploy.release.head import sign_head
from walle_deploy.service.admission import Admission, picked
from walle_deploy.service.middleware import push_middleware
from walle_deploy.service.operating import RELEASES_PATH
from walle_deploy.service.settings import ServiceSpec
from walle_deploy.store.receipt_keys import StoredReceiptKeys
from walle_deploy.store.sqlite import SqliteStore
from walle_stream.errors import (
    ConflictError,
    IntegrityError,
    ServiceUnreachableError,
    SpecFileError,
)
from walle_stream.wire.bearer import bearer_headers
from walle_stream.wire.report_batch import REPORTS_PATH, encode_batch

FILES = "https://files.example/"


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "releases.db"
    with closing(SqliteStore(path)) as store:
        commands = ReleaseCommands(store, "ann")
        package = PushedFile("s/t/v1/t-v1.walle", "s/t/v1/t-v1.walle", "0" * 64, 5)
        commands.publish("s/t", "v1", VersionFiles((package,)))
        commands.adopt("s/t", "v1")
    return str(path)


async def business(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"bought"})


def test_another_application_tells_devices_what_a_store_has(store, caplog):
    service = open_service(store, FILES)
    profile = encode_profile(DeviceProfile("d-1")).encode()
    sent = []

    async def send(message):
        sent.append(message)

    async def ask():
        async with service.running():
            app = push_middleware(business, service)
            scope = {"type": "http", "headers": [(b"walle-profile", profile)]}
            await app(scope, None, send)

    asyncio.run(ask())
    assert caplog.text.count("authentication is open") == 1
    value = dict(sent[0]["headers"])[b"walle-push"]
    push = msgspec.json.decode(urlsafe_b64decode(value + b"=="), type=Push)
    assert push.metadata_url == f"{FILES}metadata/"
    assert [each.url for each in push.tasks[0].files] == [f"{FILES}s/t/v1/t-v1.walle"]


def test_without_addresses_or_releases_it_does_not_start(store, tmp_path):
    with pytest.raises(SpecFileError, match=r"no spec\.cdn, spec\.metadata"):
        open_service(store)
    with pytest.raises(ServiceUnreachableError, match="no release store"):
        open_service(str(tmp_path / "none.db"), FILES)


def given(store, **profile):
    """Receipts that a service that starts now gives a device."""
    service = open_service(store, FILES)
    profile = DeviceProfile("d-1", receipts=HeldReceipts(), **profile)

    async def ask():
        async with service.running():
            return service.check(encode_profile(profile).encode())

    return asyncio.run(ask())


def test_services_of_a_store_issue_receipts_that_each_of_them_believes(store):
    pushed, alone = given(store), given(store, tasks={"s/t": "v1"})
    assert [len(each.tasks) for each in (pushed, alone)] == [1, 0]
    with closing(SqliteStore(store)) as opened:
        keys = StoredReceiptKeys(opened)
        keys.refresh()
        for push in (pushed, alone):
            found = keys.keys.read(push.receipts["s/t"], keys.now_ms())
            assert (found.device, found.version, found.release, found.group) == (
                "d-1",
                "v1",
                "",
                "",
            )


def test_a_service_without_operators_has_no_page_but_a_line(store):
    parts = open_parts({"store": store}, Admission(ServiceSpec()))
    with parts.beside():
        app = Starlette(routes=parts.routes)
        for path in ("/", "/releases/r"):
            answer = ask(app, path)
            assert (answer.status, "spec.operators" in answer.text) == (403, True)
            assert not answer.parsed().of("form", "table")


@pytest.mark.parametrize(("action", "is_open"), [("pause", True), ("rollback", False)])
def test_what_a_page_stops_has_the_operators_name_in_the_log(tmp_path, action, is_open):
    with opened(tmp_path / "r.db") as store:
        published(store, "v1", "v2").create(definition("r"))
        stop = partial(_stop, store, Operator("ann", "author"), "r", action, "too slow")
        with pytest.raises(ConflictError):
            stop(2)
        stop(1)
        with store.reading() as reading:
            assert reading.release("r").is_open is is_open
            last = read_entry(reading.audit("r")[-1])
        assert (last.by, last.why) == ("ann", "too slow")


def test_reports_of_a_revoked_device_count_for_nothing_whoever_brings_them(store, tmp_path):
    key, revoked = SigningKey.create("shop"), tmp_path / "revoked.txt"
    key.write(tmp_path / "signing.json", tmp_path / "keys.json")
    revoked.write_text("d-lost\n")
    spec = {"mode": "tokens", "keys": str(tmp_path / "keys.json"), "issuer": "shop"}
    spec = ServiceSpec.model_validate({"authentication": {**spec, "revoked": str(revoked)}})
    parts = open_parts({"store": store}, Admission(spec))
    with parts.beside():
        parts.receipts.refresh()
        keys, now_ms = parts.receipts.keys, parts.receipts.now_ms()
        post = _in_process(Starlette(routes=parts.routes))

        def counted(device, number, token):
            made = report([(device, 1, {})], task="s/t")
            made.devices[0].receipt = keys.issue(Receipt(device, "s/t", "v1", issued_ms=now_ms))
            batch = encode_batch([frame(number, made)])
            return post("POST", REPORTS_PATH, {"authorization": f"Bearer {token}"}, batch)

        relay = key.sign("relay", "cloud")
        assert counted("d-1", 1, relay) == (200, b'{"new":1}')
        assert counted("d-lost", 2, relay) == (200, b'{"new":0}')
        assert counted("d-lost", 3, key.sign("device", "d-lost"))[0] == 401
        assert parts.figures_beside()["reports_with_invalid_receipt_total"] == {"s/t@v1": 1}


@pytest.mark.parametrize("header", ["authorization", "walle-token", "walle-operator"])
def test_what_we_send_is_believed_whatever_the_header_of_tokens_is(store, tmp_path, header):
    key = SigningKey.create("shop")
    key.write(tmp_path / "signing.json", tmp_path / "keys.json")
    issuer = {"keys": str(tmp_path / "keys.json"), "issuer": "shop", "header": header}
    spec = {"authentication": {**issuer, "mode": "tokens"}, "operators": issuer}
    admission = Admission(ServiceSpec.model_validate(spec))
    parts = open_parts({"store": store}, admission)
    with parts.beside():
        post = _in_process(Starlette(routes=parts.routes))
        sent = bearer_headers(partial(key.sign, "relay", "cloud"))
        assert post("POST", REPORTS_PATH, sent, encode_batch([])) == (200, b'{"new":0}')
        sent = bearer_headers(partial(key.sign, "device", "d-1"))
        lines = [(name.encode(), value.encode()) for name, value in sent.items()]
        assert admission.admit_check(picked(lines, admission.headers), None) == "d-1"
        token = partial(key.sign, "approver", "ann")
        with closing(SqliteStore(store)) as opened:
            for ask in (post, _in_process(local_app(opened, "nobody"))):
                assert Releases(ask, token).get(RELEASES_PATH, list) == []


def test_no_service_starts_over_a_store_that_lacks_a_head_that_was_kept(store, tmp_path):
    key = SigningKey.create("shop")
    key.write(tmp_path / "signing.json", tmp_path / "keys.json")
    setup = {"store": store, "audit_head": tmp_path / "head", "audit_keys": tmp_path / "keys.json"}

    def keep():
        with closing(SqliteStore(store)) as opened, opened.reading() as reading:
            (tmp_path / "head").write_text(
                sign_head(reading.audit_head(), tmp_path / "signing.json")
            )

    keep()
    check_parts(setup)
    backup = Path(store).read_bytes()  # closed: nothing of it is beside it
    with closing(SqliteStore(store)) as opened:
        ReleaseCommands(opened, "ann").publish("s/t", "v2", VersionFiles(()))
    check_parts(setup)
    keep()
    Path(store).write_bytes(backup)
    with pytest.raises(IntegrityError, match=r"entry 3 .* it ends before that entry"):
        check_parts(setup)
    with closing(SqliteStore(store)) as opened:
        ReleaseCommands(opened, "eve").publish("s/t", "v3", VersionFiles(()))
    with pytest.raises(IntegrityError, match=r"entry 3 .* it ends at entry 3"):
        check_parts(setup)
    (tmp_path / "head").write_text("none")
    with pytest.raises(IntegrityError, match="is not a head"):
        check_parts(setup)


@pytest.mark.parametrize("header", ["authorization", "walle-token", "x-forwarded-for"])
def test_people_sign_in_whatever_the_header_of_their_tokens_is(store, tmp_path, header):
    key = SigningKey.create("shop")
    key.write(tmp_path / "signing.json", tmp_path / "keys.json")
    spec = {"keys": str(tmp_path / "keys.json"), "issuer": "shop", "header": header}
    spec = ServiceSpec.model_validate({"operators": spec})
    parts = open_parts({"store": store}, Admission(spec))
    with parts.beside():
        app, token = Starlette(routes=parts.routes), key.sign("approver", "ann")
        signed_in = ask(app, "/sign-in", who="", form={"token": token})
        assert (signed_in.status, ask(app, "/", token).status) == (303, 200)
        assert ask(app, "/", who="").status == 401
        if header != "x-forwarded-for":
            assert ask(app, "/", who="", **{header: f"Bearer {token}"}).status == 200


@pytest.mark.parametrize("header", ["cookie", "host", "sec-fetch-site", "user-agent"])
def test_a_header_that_browsers_write_has_no_token(header):
    spec = {"keys": "keys.json", "issuer": "shop", "header": header}
    with pytest.raises(ValidationError, match="browsers write"):
        ServiceSpec.model_validate({"operators": spec})
