"""Operators and their roles by token, and every invalid token."""

import http.server
import json
import threading
from contextlib import contextmanager

import jwt
import pytest
from pydantic import ValidationError

from tests.unit.deploy.identity.issuing import (
    NOW_S,
    ed25519,
    public,
    rsa_pair,
    segment,
    token,
    write_keys,
)
from walle_deploy.identity import issuer
from walle_deploy.operators.authenticator import OperatorAuthenticator
from walle_deploy.operators.settings import OperatorsSpec
from walle_stream.errors import ForbiddenError, IdentityError

KEY, OTHER = ed25519("k1"), ed25519("k1")


def opened(path, **changes):
    spec = {"keys": path, "issuer": "shop", **changes}
    return OperatorAuthenticator(OperatorsSpec.model_validate(spec, by_alias=True, by_name=True))


def operator(given, path, **changes):
    headers = {b"authorization": b"Bearer " + given}
    return opened(path, **changes).prove(headers, "192.0.2.1", NOW_S)


def made(key=KEY, **changes):
    return token(key, **{"aud": "walle-operators", "sub": "ann", "role": "author", **changes})


@pytest.fixture
def path(tmp_path):
    return write_keys(tmp_path / "keys.json", public(KEY))


def test_a_token_says_who_it_is_and_what_he_may_do(path):
    found = operator(made(), path)
    assert (found.name, found.role, found.issuer, found.subject) == ("ann", "author", "shop", "ann")
    assert found.is_verified
    found.need("viewer")
    found.need("author")
    with pytest.raises(ForbiddenError, match="needs the role approver"):
        found.need("approver")


def test_an_issuers_own_groups_and_names_are_given_roles(path):
    spec = {
        "name_claim": "email",
        "role_claim": "groups",
        "roles": {"shop-release": "author", "shop-leads": "approver"},
    }
    given = made(sub="00u7", email="ann@shop.example", groups=["all", "shop-leads", "shop-release"])
    found = operator(given, path, **spec)
    assert (found.name, found.subject, found.role) == ("ann@shop.example", "00u7", "approver")
    with pytest.raises(ForbiddenError, match="has no role"):
        operator(made(email="bob@shop.example", groups=["all", 7, None]), path, **spec)
    with pytest.raises(IdentityError, match="no name of an operator in 'email'"):
        operator(made(groups=["shop-leads"]), path, **spec)


def test_rsa_keys_of_openid_connect_are_known(tmp_path):
    private, open_half = rsa_pair("rsa")
    path = write_keys(tmp_path / "keys.json", open_half)
    assert operator(made(private, alg="RS256", aud=["else", "walle-operators"]), path).name == "ann"
    stolen = made(OTHER, kid="rsa")
    with pytest.raises(IdentityError, match="not valid"):
        operator(stolen, path)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (b"", "no token"),
        (b"x" * 5_000, "at most 4096"),
        (made(exp=NOW_S - 3_600), "expired"),
        (made(nbf=NOW_S + 3_600), "valid from"),
        (made(aud="walle-devices"), "not valid"),
        (made(aud="other-service"), "not valid"),
        (made(aud=None), "not valid"),
        (made(iss="else"), "not valid"),
        (made(sub=None), "not valid"),
        (made(OTHER), "not valid"),
        (
            b".".join(
                [segment({"alg": "none", "kid": "k1"}), made().split(b".")[1], b""]
            ),
            "not valid",
        ),
        (
            jwt.encode(
                {"iss": "shop", "aud": "walle-operators", "sub": "ann", "exp": NOW_S + 60, "role": "approver"},
                public(KEY)["x"],
                "HS256",
                headers={"kid": "k1"},
            ).encode(),
            "not valid",
        ),
        (made(sub="controller"), "no name of an operator"),
        (made(sub=""), "is not a valid name"),
        (made(sub="a\x1b[2Jb"), "is not a valid name"),
        (made(sub="x" * 257), "is not a valid name"),
    ],
)  # fmt: skip
def test_what_proves_nobody_is_refused(path, given, problem):
    with pytest.raises(IdentityError, match=problem):
        operator(given, path)


def test_names_with_html_and_sql_are_names(path):
    for name in ("<script>alert(1)</script>", "'; DROP TABLE walle_audit; --"):
        assert operator(made(sub=name), path).name == name


@pytest.mark.parametrize("role", [None, "admin", ["root"], {"approver": 1}, True])
def test_who_has_no_role_may_do_nothing(path, role):
    with pytest.raises(ForbiddenError, match="has no role"):
        operator(made(role=role), path)


def test_who_is_revoked_is_refused_from_the_next_request_on(path, tmp_path):
    revoked = tmp_path / "revoked.txt"
    revoked.write_text("t-9\n")
    verifier = opened(path, revoked=revoked)

    def prove(given):
        return verifier.prove({b"authorization": b"Bearer " + given}, "", NOW_S).name

    assert prove(made(jti="t-1")) == "ann"
    with pytest.raises(IdentityError, match="revoked"):
        prove(made(jti="t-9"))
    with pytest.raises(IdentityError, match="a file of revoked names"):
        prove(made(jti="t\n9"))
    (tmp_path / "part").write_text("ann\n", "utf-8-sig")
    (tmp_path / "part").replace(revoked)
    with pytest.raises(IdentityError, match="'ann', or the token, is revoked"):
        prove(made(jti="t-1"))


def test_keys_are_of_one_place_that_nobody_can_change_on_the_way(path):
    for wrong in (
        {"keys": None},
        {"keys_url": "https://id.example/jwks"},
        {"keys": None, "keys_url": "http://id.example/jwks"},
        {"keys": None, "keys_url": "file:///etc/passwd"},
        {"roles": {"a": "root"}},
    ):
        with pytest.raises(ValidationError):
            opened(path, **wrong)


@contextmanager
def serving(answers):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status, body = answers[0]
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/jwks"
        finally:
            server.shutdown()
            thread.join()


def test_keys_at_an_address_are_asked_for_again(monkeypatch, caplog):
    now = [1_000_000.0]
    monkeypatch.setattr(issuer, "monotonic_ms", lambda: now[0])
    answers = [(503, b"")]
    with serving(answers) as url:
        verifier = opened(None, keys_url=url)

        def prove():
            now[0] += 60_001
            return verifier.prove({b"authorization": b"Bearer " + made()}, "", NOW_S).name

        with pytest.raises(IdentityError, match="unknown or retired"):
            prove()
        answers[0] = 200, json.dumps({"keys": [public(KEY)]}).encode()
        assert prove() == "ann"
        for bad in ((500, b""), (302, b""), (200, b"x" * 2**20), (200, b"{}")):
            answers[0] = bad
            assert prove() == "ann"  # those before stay
        answers[0] = 200, json.dumps({"keys": [public(ed25519("k2"))]}).encode()
        with pytest.raises(IdentityError, match="unknown or retired"):
            prove()
    assert "answered 503" in caplog.text
