import argparse

import pytest

pytest.importorskip("jwt", reason="the extra `deploy` is not installed")

from tests.unit.deploy.identity.issuing import authenticator, prove
from walle_deploy.cli import token
from walle_deploy.operators.authenticator import OperatorAuthenticator
from walle_deploy.operators.settings import OperatorsSpec
from walle_stream.clock import wall_ms
from walle_stream.errors import IdentityError, SpecFileError


def run(*arguments):
    parser = argparse.ArgumentParser()
    token.add(parser.add_subparsers())
    options = parser.parse_args(["token", *map(str, arguments)])
    return options.run(options)


def test_a_key_then_tokens_that_a_service_believes(tmp_path, capsys):
    folder = tmp_path / "made" / "keys"
    assert run("key", folder, "--issuer", "shop") == 0
    capsys.readouterr()
    for who in (("device", "d-1"), ("relay", "cloud one")):
        assert run("sign", folder / "signing.json", f"--{who[0]}", who[1], "--valid", "5m") == 0
        given = capsys.readouterr().out.strip().encode()
        assert prove(authenticator(folder / "keys.json"), given, wall_ms() / 1_000)[:2] == who


def test_a_token_of_an_operator_is_for_releases_alone(tmp_path, capsys):
    run("key", tmp_path, "--issuer", "shop")
    capsys.readouterr()
    who = ("--operator", "ann", "--role", "approver")
    assert run("sign", tmp_path / "signing.json", *who) == 0
    given = capsys.readouterr().out.strip().encode()
    with pytest.raises(IdentityError):
        prove(authenticator(tmp_path / "keys.json"), given, wall_ms() / 1_000)
    spec = OperatorsSpec.model_validate({"keys": tmp_path / "keys.json", "issuer": "shop"})
    found = prove(OperatorAuthenticator(spec), given, wall_ms() / 1_000)
    assert (found.name, found.role) == ("ann", "approver")
    with pytest.raises(IdentityError):
        run("sign", tmp_path / "signing.json", "--operator", "a\x1bb")


def test_what_cannot_be_signed_is_refused(tmp_path):
    run("key", tmp_path, "--issuer", "shop")
    with pytest.raises(IdentityError):
        run("sign", tmp_path / "signing.json", "--device", "user:u-1")
    with pytest.raises(SpecFileError, match="is not a key of"):
        run("sign", tmp_path / "keys.json.none", "--device", "d-1")
    with pytest.raises(SpecFileError, match="cannot be written"):
        run("key", tmp_path / "keys.json" / "below", "--issuer", "shop")
    for arguments in (["--device", "d", "--relay", "r"], [], ["--device", "d", "--valid", "2000d"]):
        with pytest.raises(SystemExit):
            run("sign", tmp_path / "signing.json", *arguments)
