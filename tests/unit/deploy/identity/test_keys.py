import json

import pytest

from tests.unit.deploy.identity.issuing import ed25519, p256, public, rsa2048, write_keys
from walle_deploy.identity.keys import read_keys
from walle_stream.errors import SpecFileError

KEY = ed25519()


def test_keys_of_use_are_taken_and_others_passed_over(tmp_path):
    given = [
        {**public(KEY), "use": "sig", "alg": "EdDSA"},
        public(p256("ec")),
        rsa2048("rsa"),
        {**rsa2048("for RSA-PSS"), "alg": "PS256"},
        {**public(ed25519("for encryption")), "use": "enc"},
    ]
    found = read_keys(write_keys(tmp_path / "keys.json", *given))
    known = {kid: key.algorithm_name for kid, key in found.items()}
    assert known == {"k1": "EdDSA", "ec": "ES256", "rsa": "RS256"}


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ([KEY], "key 1 is a private key"),
        ([public(KEY), {"kty": "oct", "k": "c2VjcmV0", "kid": "s"}], "key 2 is a private key"),
        ([public(KEY), public(ed25519())], "key 2: a second key with kid 'k1'"),
        ([{**public(KEY), "alg": "HS256"}], "alg 'HS256' is not EdDSA"),
        ([{**public(p256()), "alg": "ES384"}], "alg 'ES384' is not ES256"),
        (
            [{name: value for name, value in public(KEY).items() if name != "kid"}],
            "key 1 has no kid",
        ),
        ([{**public(KEY), "x": "AA"}], "is not a set of keys"),
        ([{**public(KEY), "crv": ["Ed25519"]}], "no key of Ed25519, P-256 or RSA"),
        ([rsa2048(bits=1_024)], "1024 bits of RSA"),
        ([], "no key of Ed25519, P-256 or RSA"),
        (["text"], "is not a set of keys"),
    ],
)
def test_a_file_that_is_not_to_be_trusted_is_refused(tmp_path, keys, text):
    path = write_keys(tmp_path / "keys.json", *keys)
    with pytest.raises(SpecFileError) as caught:
        read_keys(path)
    assert text in caught.value.message
    assert caught.value.file == str(path)


def test_a_file_that_is_no_set_of_keys_is_refused(tmp_path):
    path = tmp_path / "keys.json"
    for data in (b"", b"[]", b"\xff", b"[" * 100_000, json.dumps({"keys": "x" * 2**20}).encode()):
        path.write_bytes(data)
        with pytest.raises(SpecFileError, match="is not a set of keys"):
            read_keys(path)
