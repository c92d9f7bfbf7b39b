"""Admission, and the answers 401, 403 and 429, as a client sees them."""

import asyncio
import json

import pytest

from tests.unit.deploy.identity.issuing import ed25519, public, token, write_keys
from tests.unit.deploy.service.offering import MemoryTable, header, table
from walle_deploy.service import admission as module
from walle_deploy.service.admission import Admission, picked
from walle_deploy.service.asgi import service_app
from walle_deploy.service.service import Parts, ReleaseService
from walle_deploy.service.settings import ServiceDefinition, ServiceSpec
from walle_stream.clock import wall_ms
from walle_stream.errors import SpecFileError
from walle_stream.spec.single import load_single

KEY = ed25519()
MANY = {"address": {"checks": 0}}


@pytest.fixture
def tokens(tmp_path):
    keys = write_keys(tmp_path / "keys.json", public(KEY))
    revoked = tmp_path / "revoked.txt"
    revoked.write_text("# lost phones\nd-lost\nt-lost\n")
    return {"mode": "tokens", "keys": keys, "issuer": "shop", "revoked": revoked}


def signed(device="d-1", **changes):
    made = {"sub": device, "exp": wall_ms() // 1_000 + 600, **changes}
    return b"Bearer " + token(KEY, **made)


def spec(**parts):
    return ServiceSpec.model_validate({"poll": "10ms", **parts})


def served(spec, *requests, act=None):
    """Return status, headers and error of each request (headers, peer), and the service."""
    service = ReleaseService(spec, Parts(MemoryTable(table())))
    app, said = service_app(service), []

    async def send(message):
        said.append(message)

    async def run():
        async with service.running():
            for number, (headers, peer) in enumerate(requests):
                if act is not None:
                    await act(number, service)
                scope = {"type": "http", "path": "/v1/check", "headers": headers}
                await app({**scope, "client": peer and (peer, 1)}, None, send)

    asyncio.run(run())
    answers = []
    for start, body in zip(said[::2], said[1::2], strict=True):
        error = json.loads(body["body"]).get("error", "") if body["body"] else ""
        answers.append((start["status"], dict(start["headers"]), error))
    return answers, service


def check(bearer=None, device="d-1", peer="192.0.2.1", **more):
    headers = [(name.replace("_", "-").encode(), value) for name, value in more.items()]
    if bearer is not None:
        headers.append((b"authorization", bearer))
    return [*headers, (b"walle-profile", header(device))], peer


def statuses(spec, *requests):
    return [status for status, _, _ in served(spec, *requests)[0]]


def test_in_the_open_mode_nobody_is_asked_and_that_is_said():
    assert statuses(spec(), check(), check(b"Bearer nonsense", "d-2"), check(peer="")) == [200] * 3
    _, service = served(spec())
    assert {each.name: each.value for each in service.figures()}["open"] == 1


def test_a_device_asks_for_itself_alone(tokens):
    answers, service = served(
        spec(authentication=tokens),
        check(signed()),
        check(signed("d-2"), "d-2"),
        check(signed("d-2"), "d-1"),
        check(signed("cloud", aud="walle-relays"), "d-1"),
        check(),
        check(b"Bearer x"),
        check(signed(iss="another fleet")),
        check(signed(exp=wall_ms() // 1_000 - 86_400)),
        check(signed("d-lost"), "d-lost"),
        check(signed(jti="t-lost")),
    )
    assert [status for status, _, _ in answers] == [
        200,
        200,
        403,
        403,
        401,
        401,
        401,
        401,
        401,
        401,
    ]
    assert "device 'd-2' sent the profile of 'd-1'" in answers[2][2]
    assert "relay 'cloud'" in answers[3][2]
    assert answers[4][1][b"www-authenticate"] == b"Bearer"
    assert answers[-1][2] == answers[-1][2].strip()
    assert "revoked" in answers[-1][2]
    assert service.admission.refused == {"forbidden": 2, "unproven": 6}
    # who was refused is no known device
    assert len(service.known) == 2
    assert {each.name: each.value for each in service.figures()}["open"] == 0


def test_a_device_is_revoked_while_it_asks(tokens):
    async def act(number, service):
        if number == 1:
            tokens["revoked"].write_text("d-1\n")
        if number == 3:
            tokens["revoked"].unlink()
        await asyncio.to_thread(service.admission.refresh)

    asked = [check(signed())] * 4
    answers, service = served(spec(authentication=tokens), *asked, act=act)
    # also when its list goes away: nobody is let in again by a slip
    assert [status for status, _, _ in answers] == [200, 401, 401, 401]
    assert "revoked.txt" in service.admission.problems[0]


@pytest.mark.parametrize("device", ["#h1", " sp", "d-1 ", "\ufeffd-1", "d\x851"])
def test_whatever_may_be_a_device_may_be_revoked(tokens, device):
    async def act(number, service):
        if number == 1:
            tokens["revoked"].write_text(f"{device}\nd-9\n")
            await asyncio.to_thread(service.admission.refresh)

    asked = [check(signed(sub=device), device)] * 2
    answers, _ = served(spec(authentication=tokens), *asked, act=act)
    assert [status for status, _, _ in answers] == [200, 401]


@pytest.mark.parametrize("claims", [{"sub": "d\n1"}, {"sub": "d\r1"}, {"jti": "t\n1"}])
def test_whoever_could_not_be_revoked_is_nobody(tokens, claims):
    asked = check(signed(**claims), claims.get("sub", "d-1"))
    [(status, _, error)], _ = served(spec(authentication=tokens), asked)
    assert (status, "a file of revoked names" in error) == (401, True)


def test_a_certificate_is_believed_from_the_proxy_alone():
    asked = {"mode": "proxy", "header": "x-client", "relays": ["cloud"]}
    behind = spec(authentication=asked, proxies=["10.0.0.0/8"])
    assert statuses(
        behind,
        check(peer="10.0.0.1", x_client=b"CN=d-1,O=Fleet"),
        check(peer="10.0.0.1", x_client=b"CN=d-2,O=Fleet"),
        check(peer="10.0.0.1", x_client=b"CN=cloud"),
        check(peer="10.0.0.1"),
        check(peer="192.0.2.1", x_client=b"CN=d-1,O=Fleet"),
        check(peer="192.0.2.1", x_client=b"CN=d-1", x_forwarded_for=b"10.0.0.1"),
        check(peer="", x_client=b"CN=d-1"),
    ) == [200, 403, 403, 401, 401, 401, 401]


@pytest.fixture
def clock(monkeypatch):
    now = [1e6]
    monkeypatch.setattr(module, "monotonic_ms", lambda: now[0])
    return now


def test_a_device_has_a_budget_of_its_own_behind_any_address(tokens, clock):
    budgets = {"device": {"checks": 1}, "address": {"checks": 0}, "burst": "2s"}
    few = spec(authentication=tokens, budgets=budgets)
    own = [check(signed(), peer=f"192.0.2.{number}") for number in range(5)]
    answers, service = served(few, *own, check(signed("d-2"), "d-2"))
    assert [status for status, _, _ in answers] == [200, 200, 200, 429, 429, 200]
    assert answers[3][1][b"retry-after"] == b"1"
    assert "device 'd-1'" in answers[3][2]
    assert service.admission.refused == {"over_budget": 2}

    async def act(number, _):
        clock[0] += 1_000.0 * (number > 2)

    answers, _ = served(few, *own, act=act)
    assert [status for status, _, _ in answers] == [200] * 5


def test_an_address_has_a_budget_whoever_asks_and_a_proxy_says_whose(clock):
    budgets = {"address": {"checks": 1}, "burst": "1s"}
    few = spec(budgets=budgets, proxies=["10.0.0.1"])
    ipv6 = [check(peer=f"2001:db8::{number:x}") for number in range(3)]
    assert statuses(few, *ipv6, check(peer="2001:db8:0:1::1")) == [200, 200, 429, 200]
    # devices behind a proxy are apart, whatever a client says of itself
    behind = [
        check(peer="10.0.0.1", x_forwarded_for=b"9.9.9.9, 198.51.100.%d" % (number % 3))
        for number in range(6)
    ]
    assert statuses(few, *behind) == [200] * 6
    lying = [check(peer="192.0.2.1", x_forwarded_for=b"198.51.100.%d" % each) for each in range(3)]
    assert statuses(few, *lying) == [200, 200, 429]


def test_who_is_refused_spends_its_addresss_budget_and_no_devices(tokens, clock):
    budgets = {"device": {"checks": 1}, "address": {"checks": 4}, "burst": "1s"}
    few = spec(authentication=tokens, budgets=budgets)
    forged = [check(b"Bearer x", peer="192.0.2.9")] * 8
    answers, service = served(few, *forged, check(signed()), check(signed()))
    assert [status for status, _, _ in answers] == [401] + [429] * 7 + [200, 200]
    assert answers[1][1][b"retry-after"] == b"2"
    assert service.admission.refused == {"unproven": 1, "over_budget": 7}


def test_ten_thousand_addresses_take_the_room_that_they_may(clock):
    small = spec(budgets={"remembered": 100})
    asked = [check(peer=f"198.51.{each // 250}.{each % 250}") for each in range(10_000)]
    answers, service = served(small, *asked)
    assert {status for status, _, _ in answers} == {200}
    assert len(service.admission._addresses["checks"]) == 100


def test_refusals_are_logged_once_a_minute(tokens, clock, caplog):
    served(spec(authentication=tokens, budgets=MANY), *[check(b"Bearer \n%s" % b"x" * 99)] * 50)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "192.0.2.1 was refused" in caplog.text


def test_of_a_header_that_stands_there_twice_none_is_taken():
    wanted = frozenset({b"a"})
    assert picked([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")], wanted) == {b"a": b"1, 3"}


@pytest.mark.parametrize(
    ("line", "place", "text"),
    [
        ("authentication: {mode: tokens, keys: k, issuer: i, skew: 1d}", "5:60", "at most"),
        (
            "authentication: {mode: token}",
            "5:26",
            "'open', 'tokens', 'proxy', found 'token', did you mean 'tokens'?",
        ),
        ("authentication: {keys: k}", "5:3", "missing key 'mode'"),
        ("authentication: {mode: tokens, keyz: k, issuer: i}", "5:34", "did you mean 'keys'?"),
        (
            "authentication: {mode: tokens, keys: k, issuer: i, relayAudience: walle-devices}",
            "5:69",
            "any device could report for all",
        ),
        (
            "authentication: {mode: proxy, header: x-client}",
            "5:19",
            "any client could pose as the proxy",
        ),
        ("authentication: {mode: proxy, header: X-Client}", "5:41", "[a-z0-9]"),
        ("authentication: tokens", "5:19", "a mapping, found 'tokens'"),
        ("proxies: [10.0.0.1/8]", "5:13", "has host bits set"),
        ("budgets: {device: {checks: -1}}", "5:30", "at least 0, found -1"),
        ("budgets: {adress: {checks: 1}}", "5:13", "did you mean 'address'?"),
    ],
)
def test_what_is_wrong_in_a_set_up_is_said_with_its_place(tmp_path, line, place, text):
    path = tmp_path / "service.yaml"
    head = "apiVersion: walle/v1\nkind: ReleaseService\nmetadata: {name: t}\nspec:\n  "
    path.write_text(f"{head}{line}\n")
    with pytest.raises(SpecFileError) as caught:
        load_single(path, ServiceDefinition)
    assert f"{caught.value.line}:{caught.value.column}" == place
    assert text in caught.value.message


def test_files_that_cannot_be_read_are_said_at_the_start(tokens, tmp_path):
    for name in ("keys", "revoked"):
        with pytest.raises(SpecFileError, match="none"):
            Admission(spec(authentication={**tokens, name: tmp_path / "none"}))
    secret = {"mode": "proxy", "header": "x", "secret": tmp_path / "none"}
    with pytest.raises(SpecFileError, match="none"):
        Admission(spec(authentication=secret))
