import argparse
import json
import sys

import pytest

from walle_deploy.cli import repository
from walle_deploy.trust.repository import TrustedRepository
from walle_deploy.trust.roles import LIFETIME_MS
from walle_stream.clock import wall_ms
from walle_stream.errors import DeployError, IntegrityError, ProfileError, RefNotFoundError
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.package.build import build_package
from walle_stream.vm.package.reader import PackagedTask

LIMITS = RunLimits(1_000, 10, 5, 2_000, 2, 0, 9_999)


@pytest.fixture
def walle(capsys):
    parser = argparse.ArgumentParser(exit_on_error=False)
    repository.add(parser.add_subparsers())

    def run(*words, code=0):
        options = parser.parse_args(["repository", *map(str, words)])
        assert options.run(options) == code
        text = capsys.readouterr().out
        return json.loads(text) if "--json" in words else text

    return run


@pytest.fixture
def folder(tmp_path, walle):
    walle("init", tmp_path / "r")
    return tmp_path / "r"


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    task = PackagedTask("ipv", "v1", 1, "t.py", (("a",),), None, {}, LIMITS)
    path = tmp_path_factory.mktemp("packages") / "ipv-v1.walle"
    path.write_bytes(build_package(task, "def run(ctx, page):\n    pass\n"))
    return path


def test_a_version_from_init_to_status(walle, folder, package, tmp_path):
    (tmp_path / "own" / "user%3Aann" / "deep").mkdir(parents=True)
    (tmp_path / "own" / "user%3Aann" / "deep" / "prices.bin").write_bytes(b"1")
    words = ("publish", folder, package, "--scenario", "shop", "--exclusive", tmp_path / "own")
    made = walle(*words, "--json")
    assert made["ref"] == "shop/ipv@v1"
    assert made["files"]["shared"][0]["target"] == "shop/ipv/v1/ipv-v1.walle"
    assert made["files"]["exclusive"]["user:ann"][0]["resource"] == "deep/prices.bin"
    assert walle(*words).startswith("published shop/ipv@v1: shop/ipv/v1/ipv-v1.walle, ")
    found = walle("status", folder, "--json")
    assert (found["targets"], found["bins"], found["expired"]) == (1, 1, [])
    assert "packages" in walle("status", folder)
    assert walle("refresh", folder) == "signed timestamp\n"
    assert walle("retire", folder, "shop/ipv/v1/ipv-v1.walle", "--json")["retired"]


def test_keys_in_another_folder_and_of_several_people(walle, tmp_path):
    keys = tmp_path / "keys"
    made = walle(
        *("init", tmp_path / "r", "--keys", keys, "--json"),
        *("--root-keys", 3, "--root-threshold", 2),
    )
    assert made["keys"] == str(keys)
    assert not (tmp_path / "r" / "keys").exists()
    root = walle("status", tmp_path / "r", "--keys", keys, "--json")["roles"][0]
    assert (len(root["keys"]), root["threshold"], root["keys_here"]) == (3, 2, 3)
    new = walle(
        "rotate", tmp_path / "r", "root", "--keys", keys, "--key", root["keys"][0], "--json"
    )
    assert new["key"] not in root["keys"]


def test_the_keys_of_exclusive_addresses(walle, folder):
    first = walle("enrol", folder, "d-1", "--json")["secret"]
    assert walle("enrol", folder, "d-1") == f"{first}\n"
    assert walle("rotate", folder, "urls").startswith("urls: new key ")
    assert walle("enrol", folder, "d-1") == f"{first}\n"
    new = walle("rotate", folder, "devices", "--json")["key"]
    assert walle("enrol", folder, "d-1").startswith(new)
    assert (folder / "keys" / "cen.json").stat().st_mode & 0o777 == 0o600


def test_what_is_expired_is_said_and_in_the_exit_code(walle, folder, monkeypatch):
    later = wall_ms() + 3 * 86_400_000
    monkeypatch.setattr(TrustedRepository.__init__, "__defaults__", (None, lambda: later))
    text = walle("status", folder, code=IntegrityError.exit_code)
    assert next(line for line in text.splitlines() if "EXPIRED" in line).startswith("timestamp ")


@pytest.mark.parametrize(
    ("words", "error", "reason"),
    [
        (("status", "none"), RefNotFoundError, "walle repository init"),
        (("init", "r", "--root-threshold", "2"), DeployError, "at most --root-keys"),
        (("enrol", "none", "d"), DeployError, "holds no key ring"),
        (("enrol", "made", ""), ProfileError, "the device id is empty"),
        (("enrol", "made", "user:ann"), ProfileError, "cannot begin with 'user:'"),
    ],
)
def test_wrong_input_ends_with_one_line(walle, tmp_path, monkeypatch, words, error, reason):
    monkeypatch.chdir(tmp_path)
    walle("init", "made")
    with pytest.raises(error, match=reason) as caught:
        walle(*words)
    assert "\n" not in str(caught.value)


def test_a_role_or_a_folder_that_is_none(walle, folder, package, capsys):
    with pytest.raises(SystemExit):
        walle("rotate", folder, "x")
    assert "'timestamp', 'urls', 'devices'" in capsys.readouterr().err
    assert tuple(LIFETIME_MS) == repository._ROLES  # which the command knows without the extra
    with pytest.raises(RefNotFoundError, match="there is no role 'x': expected root"):
        TrustedRepository(folder).rotate("x")
    with pytest.raises(RefNotFoundError, match="expected OWNER/RESOURCE"):
        walle("publish", folder, package, "--scenario", "shop", "--exclusive", folder / "x")


def test_without_the_extra_it_says_what_to_install(walle, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tuf", None)
    with pytest.raises(DeployError, match=r"pip install .*\[deploy\]"):
        walle("status", tmp_path)
