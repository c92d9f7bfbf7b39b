"""Whose a token is, and every way in which it is none: RFC 8725's list, and clocks."""

import hashlib
import hmac

import pytest

from tests.unit.deploy.identity.issuing import (
    NOW_S,
    authenticator,
    claims,
    ed25519,
    p256,
    prove,
    public,
    segment,
    token,
    write_keys,
)
from walle_deploy.identity import tokens
from walle_stream.errors import IdentityError

KEY, OTHER = ed25519("k1"), ed25519("k2")
DAY_S = 86_400


@pytest.fixture
def path(tmp_path):
    return write_keys(tmp_path / "keys.json", public(KEY))


@pytest.fixture
def verifier(path):
    return authenticator(path)


def refused(verifier, given, now_s=NOW_S):
    with pytest.raises(IdentityError) as caught:
        prove(verifier, given, now_s)
    return caught.value.message


def test_a_token_says_whose_it_is(verifier, path):
    proven = prove(verifier, token(KEY, jti="t-1"))
    assert (proven.role, proven.name, proven.token) == ("device", "d-1", "t-1")
    relay = prove(verifier, token(KEY, aud=["else", "walle-relays"], sub="cloud one"))
    assert (relay.role, relay.name) == ("relay", "cloud one")
    # where the business has its own tokens in authorization, without a scheme
    own = authenticator(path, header="walle-token")
    assert own.headers == {b"walle-token"}
    assert own.prove({b"walle-token": token(KEY)}, "", NOW_S).name == "d-1"


@pytest.mark.parametrize("header", [b"authorization", b"walle-token", b"x-own"])
def test_a_token_is_found_in_our_own_header_whatever_the_other_one_is(path, header):
    verifier = authenticator(path, header=header.decode())
    own, other = token(KEY), token(KEY, sub="d-2")

    def name(**headers):
        given = {key.replace("_", "-").encode(): value for key, value in headers.items()}
        assert verifier.headers == {header, b"walle-token"}
        return verifier.prove(given, "", NOW_S).name

    both = {header.decode(): b"Bearer " + own, "walle_token": own}
    assert name(**both) == name(walle_token=b"bearer " + own) == "d-1"
    assert name(**{header.decode(): own, "walle_token": b""} | both) == "d-1"
    if header == b"walle-token":
        return
    for wrong in (other, b"x", own + b"x"):
        for pair in ((own, wrong), (wrong, own)):
            with pytest.raises(IdentityError, match="have different tokens"):
                name(**dict(zip((header.decode(), "walle_token"), pair, strict=True)))


def test_p256_is_known_by_the_keys_kind(tmp_path):
    key = p256("ec")
    verifier = authenticator(write_keys(tmp_path / "keys.json", public(key)))
    assert prove(verifier, token(key, alg="ES256")).name == "d-1"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"iss": "another fleet"}, "issuer"),
        ({"iss": None}, "iss"),
        ({"aud": "another service"}, "Audience"),
        ({"aud": None}, "aud"),
        ({"aud": ["walle-devices", "walle-relays"]}, "one of both"),
        ({"sub": None}, "sub"),
        ({"sub": "user:u-1"}, "cannot begin with"),
        ({"sub": ""}, "the proof of a device"),
        ({"aud": "walle-relays", "sub": "line\nbreak"}, "is not a valid name"),
        ({"exp": None}, "exp"),
        ({"exp": NOW_S - 61}, "expired at 2027-01-15 07:58:59Z"),
        ({"exp": NOW_S - DAY_S}, "a clock is wrong"),
        ({"exp": "soon"}, "exp is not a time"),
        ({"exp": True}, "exp is not a time"),
        ({"exp": float("inf")}, "exp is not a time"),
        ({"exp": 10**400}, "not valid"),
        ({"nbf": NOW_S + 61}, "valid from 2027-01-15 08:01:01Z on"),
        ({"iat": NOW_S + DAY_S}, "a clock may be wrong"),
        ({"nbf": 1e300}, "valid from 1e+300 s on"),
        ({"exp": -1e300}, "expired at -1e+300 s"),
    ],
)
def test_a_signed_token_for_somebody_else_or_another_time_is_none(verifier, changes, text):
    assert text in refused(verifier, token(KEY, **changes))


def test_clocks_may_be_a_minute_apart_and_no_day(verifier):
    given = token(KEY, nbf=NOW_S, exp=NOW_S + 600)
    assert prove(verifier, given, NOW_S - 59).name == "d-1"
    assert prove(verifier, given, NOW_S + 659).name == "d-1"
    # the service's clock is a day wrong: what it knew is not believed either
    assert "expired" in refused(verifier, given, NOW_S + DAY_S)
    assert "is valid from" in refused(verifier, given, NOW_S - DAY_S)
    assert "is valid from" in refused(verifier, given, NOW_S - 61)
    assert prove(verifier, given, NOW_S).name == "d-1"


def test_what_a_token_says_of_its_algorithm_is_not_believed(verifier):
    head, body, _ = token(KEY).split(b".")
    none = segment({"alg": "none", "kid": "k1"}) + b"." + body + b"."
    assert "not valid" in refused(verifier, none)
    # the public key as the secret of an HMAC, in every form that a library may take it in
    for secret in (KEY["x"].encode(), bytes(32)):
        signed = segment({"alg": "HS256", "kid": "k1"}) + b"." + body
        mac = hmac.new(secret, signed, hashlib.sha256).digest()
        assert "not valid" in refused(verifier, signed + b"." + segment(mac))
    # a key that the token brings itself
    own = {"alg": "EdDSA", "kid": "k2", "jwk": public(OTHER), "jku": "http://127.0.0.1:1/"}
    signed = segment(own) + b"." + body + b"." + token(OTHER).rsplit(b".", 1)[1]
    assert "unknown or retired" in refused(verifier, signed)
    assert "not valid" in refused(
        verifier, head + b"." + segment(claims(sub="d-2")) + b"." + b"AAAA"
    )


def test_a_key_that_is_not_ours_is_none_whatever_it_is_called(verifier):
    assert "unknown or retired" in refused(verifier, token(OTHER))
    assert "not valid" in refused(verifier, token(OTHER, kid="k1"))
    assert "unknown or retired" in refused(verifier, token(p256("e"), alg="ES256"))
    assert "not valid" in refused(verifier, token(p256("k1"), alg="ES256"))


@pytest.mark.parametrize(
    "given",
    [
        b"",
        b"x",
        b"..",
        b"a.b.c",
        b"\xff\xfe.\xff.\xff",
        b"A" * (tokens.TOKEN_MAX_BYTES + 1),
        b"A" * 10**6,
        segment(b"[" * 3_000) + b".e30.AA",
        segment(b'{"a":' * 500) + b".e30.AA",
        segment(b"[]") + b".e30.AA",
        segment({"alg": "EdDSA", "kid": ["k1"]}) + b".e30.AA",
        segment({"alg": "EdDSA", "kid": {}}) + b".e30.AA",
        segment({"alg": 7, "kid": "k1"}) + b".e30.AA",
        segment(b'{"alg":"EdDSA","kid":"k1","x":' + b"9" * 2_500 + b"}") + b".e30.AA",
        segment({"alg": "EdDSA", "kid": "k1", "b64": False, "crit": ["b64"]}) + b"..AA",
        segment({"alg": "EdDSA", "kid": "k1", "crit": ["walle"]}) + b".e30.AA",
        token(KEY) + b", Bearer " + token(KEY),
        token(KEY) + b".more",
        token(KEY)[:-8],
        token(KEY)[:-8] + b"AAAAAAAA",
    ],
)
def test_what_is_no_token_is_refused_in_few_words(verifier, given):
    assert len(refused(verifier, given)) < 400


def test_a_token_is_verified_once_and_never_past_its_end(verifier, monkeypatch):
    given = token(KEY)
    verified = []
    decode = tokens.jwt.decode
    monkeypatch.setattr(tokens.jwt, "decode", lambda *a, **k: verified.append(1) or decode(*a, **k))
    for _ in range(3):
        assert prove(verifier, given).name == "d-1"
    assert len(verified) == 1
    assert "expired" in refused(verifier, given, NOW_S + 3_661)
    # what was refused is looked at anew: a clock that was set right again
    late = token(KEY, nbf=NOW_S + 600)
    refused(verifier, late)
    assert prove(verifier, late, NOW_S + 600).name == "d-1"


def test_what_is_remembered_has_a_bound(path):
    verifier = authenticator(path, cached=10)
    for number in range(100):
        assert prove(verifier, token(KEY, sub=f"d-{number}")).name == f"d-{number}"
    assert len(verifier._known.tokens) == 10


def test_keys_are_rotated_and_retired_while_it_runs(verifier, path):
    old, new = token(KEY), token(OTHER)
    prove(verifier, old)
    assert "unknown or retired" in refused(verifier, new)
    write_keys(path, public(OTHER), public(KEY))
    assert verifier.watched[0].refresh()
    assert (prove(verifier, old).name, prove(verifier, new).name) == ("d-1", "d-1")
    write_keys(path, public(OTHER))
    verifier.watched[0].refresh()
    # also what was verified before
    assert "retired" in refused(verifier, old)
    # a file that is half there changes nothing
    path.write_text('{"keys": [')
    assert not verifier.watched[0].refresh()
    assert "keys.json" in verifier.watched[0].problem
    assert prove(verifier, new).name == "d-1"
