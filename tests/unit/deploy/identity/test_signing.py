import json
import stat

import pytest

from tests.unit.deploy.identity.issuing import authenticator, prove
from walle_deploy.identity import signing
from walle_deploy.identity.signing import SelfSigned, SigningKey
from walle_stream.clock import wall_ms
from walle_stream.errors import SpecFileError


def test_a_key_signs_what_its_public_half_verifies_also_after_a_rotation(tmp_path):
    private, public = tmp_path / "signing.json", tmp_path / "keys.json"
    SigningKey.create("shop").write(private, public)
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert "d" not in json.loads(public.read_text())["keys"][0]
    old = SigningKey.read(private).sign("device", "d-1").encode()
    SigningKey.create("shop").write(private, public)
    new = SigningKey.read(private).sign("relay", "one", 60).encode()
    verifier, now_s = authenticator(public), wall_ms() / 1_000
    assert prove(verifier, old, now_s)[:2] == ("device", "d-1")
    assert prove(verifier, new, now_s)[:2] == ("relay", "one")


def test_a_key_that_others_may_read_or_that_is_none_is_refused(tmp_path):
    private, public = tmp_path / "signing.json", tmp_path / "keys.json"
    SigningKey.create("shop").write(private, public)
    private.chmod(0o640)
    with pytest.raises(SpecFileError, match="others may read"):
        SigningKey.read(private)
    for text in ("", "{}", '{"issuer": "shop", "key": {"kty": "OKP"}}'):
        private.chmod(0o600)
        private.write_text(text)
        with pytest.raises(SpecFileError, match="is not a key of"):
            SigningKey.read(private)
    with pytest.raises(SpecFileError, match="is not a key of"):
        SigningKey.read(tmp_path / "none")
    # what is there is not overwritten by a half
    public.write_text("mine")
    with pytest.raises(SpecFileError, match="is not a set of keys"):
        SigningKey.create("shop").write(private, public)
    assert public.read_text() == "mine"


def test_a_host_signs_anew_before_a_token_ends_and_when_its_clock_was_set(monkeypatch):
    now_s = 1_800_000_000
    monkeypatch.setattr(signing, "wall_ms", lambda: now_s * 1_000)
    tokens = SelfSigned(SigningKey.create("shop"))
    first = tokens.device("d-1")
    assert tokens.device("d-1") == first
    assert tokens.device("d-2") != first
    now_s += signing.VALID_S // 2
    second = tokens.device("d-1")
    assert second != first
    now_s -= 86_400
    assert tokens.device("d-1") not in {first, second}
    assert tokens.relay() == tokens.relay()
