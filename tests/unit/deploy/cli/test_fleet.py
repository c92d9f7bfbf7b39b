import argparse
import sys
from types import SimpleNamespace

import pytest

from walle_deploy.cli import fleet
from walle_deploy.cli.fleet import given_profile
from walle_stream.actors.plan.latency import Latencies
from walle_stream.app.figures.ledger import LedgerReport
from walle_stream.app.report import RunReport
from walle_stream.errors import DeployError, IntegrityError, SpecFileError
from walle_stream.wire.ledger import Ledger
from walle_stream.wire.rows import Counters

GIVEN = ["x.yaml", "--service", "http://127.0.0.1:1", "--root", "root.json"]


def parsed(*arguments):
    parser = argparse.ArgumentParser()
    fleet.add(parser.add_subparsers())
    return parser.parse_args(["fleet", *GIVEN, *arguments])


def run(*arguments):
    options = parsed(*arguments)
    return options.run(options)


def test_a_profile_is_what_was_given_and_what_the_machine_knows():
    options = parsed("--id", "d-1", "--app", "shop", "--performance", "high", "--memory-mb", "512")
    profile = given_profile(options)
    assert (profile.device, profile.app, profile.performance) == ("d-1", "shop", "high")
    assert (profile.memory_mb, profile.interpreter) == (512, sys.implementation.cache_tag)
    assert profile.os
    assert options.events == "-"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--id", "d", "--performance", "huge"], "the profile of 'd': Invalid enum value 'huge'"),
        (["--id", "d", "--memory-mb", "much"], "Expected `int`"),
        (["--id", "d", "--memory-mb", "-1"], ">= 0"),
        (["--id", "d", "--app", "x" * 129], "length <= 128"),
        (["--id", ""], "--id: "),
    ],
)
def test_a_profile_that_is_none_is_refused(arguments, text):
    with pytest.raises(SpecFileError) as caught:
        given_profile(parsed(*arguments))
    assert text in str(caught.value)


def test_either_one_device_or_a_file_of_them():
    for arguments in ([], ["--id", "d", "--profiles", "p"]):
        with pytest.raises(SystemExit):
            parsed(*arguments)
    pytest.importorskip("tuf", reason="the extra `deploy` is not installed")
    with pytest.raises(SpecFileError, match="--app-version needs --id"):
        run("--profiles", "p.jsonl", "--app-version", "7")
    with pytest.raises(SpecFileError, match="--follow needs --id"):
        run("--profiles", "p.jsonl", "--follow")


@pytest.mark.parametrize("url", ["ftp://x", "http://h:1/path", "http://h:p", "nourl"])
def test_a_service_that_is_no_address_is_refused(url):
    pytest.importorskip("tuf", reason="the extra `deploy` is not installed")
    with pytest.raises(SpecFileError, match=r"--service .*is not the address") as caught:
        run("--id", "d", "--service", url)
    assert caught.value.exit_code == 3


def test_a_root_that_is_none_is_refused_at_the_start(tmp_path):
    pytest.importorskip("tuf", reason="the extra `deploy` is not installed")
    root, profiles = tmp_path / "root.json", tmp_path / "p.jsonl"
    profiles.write_text('{"device": "a"}\n')
    where = ["--root", str(root), "--data-dir", str(tmp_path / "data")]
    for text in ("{}", "no JSON"):
        root.write_text(text)
        with pytest.raises(IntegrityError, match=r"--root .*root\.json: is not root metadata"):
            fleet._hosting(parsed("--profiles", str(profiles), *where), [], tmp_path / "data")
    assert not (tmp_path / "data-files").exists()


@pytest.mark.parametrize(
    ("problems", "arguments", "code"),
    [
        ([], [], 0),
        (["task 't' never fired"], [], 22),
        (["task 't' never fired"], ["--allow-empty"], 0),
    ],
)
def test_a_fleet_ends_as_a_run_does(tmp_path, monkeypatch, problems, arguments, code):
    pytest.importorskip("tuf", reason="the extra `deploy` is not installed")
    report = RunReport(
        pipeline="p",
        data_dir=str(tmp_path),
        stopped_by="end",
        counters=Counters(),
        cloud=None,
        ledger=LedgerReport.of(Counters(), Ledger()),
        tasks=[],
        problems=problems,
        exit_to_commit_ms=Latencies().report(),
        run_events=0,
        wall_s=0.0,
        cpu_s=0.0,
    )
    hosting = SimpleNamespace(beside=None, fit=lambda _: None, close=lambda: None)
    monkeypatch.setattr(fleet, "_hosting", lambda *_: hosting)
    monkeypatch.setattr("walle_stream.cli.run.carry_out", lambda *_: report)
    profiles = tmp_path / "profiles.jsonl"
    profiles.write_text('{"device": "a"}\n')
    where = ["--data-dir", str(tmp_path / "data"), "--json", *arguments]
    options = parsed("--profiles", str(profiles), *where)
    options.file = "ipv"
    assert options.run(options) == code


def test_secrets_are_read_by_device(tmp_path):
    file = tmp_path / "s.jsonl"
    file.write_text('{"device": "a", "secret": "k.1"}\n')
    assert fleet.read_secrets(file) == {"a": "k.1"}
    file.write_text('{"device": "a"}\n')
    with pytest.raises(SpecFileError, match=r"s\.jsonl:1: "):
        fleet.read_secrets(file)


def test_a_pause_between_requests_is_not_too_short():
    assert parsed("--id", "d", "--every", "50ms").every == 50
    for text in ("0s", "9ms", "x"):
        with pytest.raises(SystemExit):
            parsed("--id", "d", "--every", text)


def access(*arguments):
    return fleet._access(parsed(*arguments))


def test_who_asks_is_proven_by_a_token_or_by_a_key_that_signs_them(tmp_path, monkeypatch):
    pytest.importorskip("tuf", reason="the extra `deploy` is not installed")
    from walle_deploy.identity.signing import SigningKey  # noqa: PLC0415 - an extra

    assert access("--id", "d").device_token is None
    file, key = tmp_path / "token", tmp_path / "signing.json"
    file.write_text("abc\n")
    SigningKey.create("shop").write(key, tmp_path / "keys.json")
    own = access("--id", "d", "--token", str(file))
    assert own.device_token("d") == own.reports_token() == "abc"
    monkeypatch.setenv("WALLE_TOKEN", "def")
    assert access("--id", "d").reports_token() == "def"
    # the variable is of one device: a host of many has none
    assert access("--profiles", "p").reports_token is None
    one = access("--id", "d", "--device-key", str(key))
    assert one.device_token("d") == one.reports_token()
    many = access("--profiles", "p", "--device-key", str(key))
    assert many.device_token("a") != many.device_token("b") != many.reports_token()


def test_a_token_of_one_device_is_none_of_many():
    pytest.importorskip("tuf", reason="the extra `deploy` is not installed")
    with pytest.raises(SpecFileError, match="--token needs --id"):
        access("--profiles", "p", "--token", "t")
    with pytest.raises(SpecFileError, match="cannot be read"):
        access("--id", "d", "--token", "none")
    with pytest.raises(SystemExit):
        access("--id", "d", "--token", "t", "--device-key", "k")


def test_a_missing_extra_is_said_in_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "tuf", None)
    with pytest.raises(DeployError, match=r"pip install .*\[deploy\]"):
        run("--id", "d")
