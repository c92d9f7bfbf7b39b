"""The signed end of an audit log, and everything that is none."""

import pytest

from walle_deploy.identity.signing import SigningKey
from walle_deploy.release.head import read_head, sign_head
from walle_deploy.store.rows import AuditHead
from walle_stream.errors import IntegrityError, SpecFileError

HEAD = AuditHead(7, "ab" * 32)


@pytest.fixture
def folder(tmp_path):
    SigningKey.create("shop").write(tmp_path / "signing.json", tmp_path / "keys.json")
    return tmp_path


def kept(folder, text):
    (folder / "head").write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_head(folder / "head", folder / "keys.json")


def test_what_was_signed_is_read_again(folder):
    assert kept(folder, sign_head(HEAD, folder / "signing.json") + "\n") == HEAD


def test_what_these_keys_have_not_signed_is_no_head(folder):
    key, thief = SigningKey.read(folder / "signing.json"), SigningKey.create("shop")
    signed = sign_head(HEAD, folder / "signing.json")
    for wrong in (
        "",
        "7:" + "ab" * 32,
        signed[:-3],
        b"\xff" * 10,
        "x" * 10_000,
        "eyJhbGciOiJub25lIn0.eyJudW1iZXIiOjd9.",
        thief.seal("walle-audit", {"number": 7, "hash": "ab"}),
        key.seal("walle-audit", {"number": 7}),
        key.seal("walle-audit", {"number": "x", "hash": "ab"}),
        key.sign("approver", "ann"),
    ):
        with pytest.raises(IntegrityError, match="is not a head signed by these keys"):
            kept(folder, wrong)


def test_files_that_are_not_there_are_named(folder):
    with pytest.raises(SpecFileError, match=r"none\.jwt: No such file"):
        read_head(folder / "none.jwt", folder / "keys.json")
    (folder / "head").write_text("x")
    with pytest.raises(SpecFileError, match=r"keys\.none: No such file"):
        read_head(folder / "head", folder / "keys.none")
    with pytest.raises(SpecFileError, match=r"private key|not a set of keys"):
        read_head(folder / "head", folder / "signing.json")
