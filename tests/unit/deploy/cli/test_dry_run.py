import argparse
import json

import pytest

from walle_deploy.assembly.operating import demand_operators
from walle_deploy.cli.dry_run import add
from walle_deploy.identity.signing import SigningKey
from walle_deploy.model.profile import DeviceProfile
from walle_deploy.model.pushes import PushedFile
from walle_deploy.model.releases import VersionFiles
from walle_deploy.operators.settings import OperatorsSpec
from walle_deploy.policy.facts import Sources
from walle_deploy.policy.index import ReleaseIndex
from walle_deploy.release.commands import ReleaseCommands
from walle_deploy.release.model import Release
from walle_deploy.service.settings import ServiceDefinition
from walle_deploy.store.sqlite import SqliteStore
from walle_stream.errors import (
    IdentityError,
    RefNotFoundError,
    ServiceUnreachableError,
    SpecFileError,
)
from walle_stream.spec.single import load_single

RELEASE = """\
apiVersion: walle/v1
kind: Release
metadata: {name: r1}
spec:
  task: shop/ipv
  version: v2
  policy:
    app: shop
    exclude: [{devices: [d-9]}]
    any: [{os: android}, {region: cn-*}]
"""
OTHER = """\
apiVersion: walle/v1
kind: Release
metadata: {name: first}
spec: {task: shop/ipv, version: v3, priority: 5, policy: {devices: [d-1]}}
"""
POLICY = """\
apiVersion: walle/v1
kind: Policy
metadata: {name: some}
spec: {app: shop}
"""
POPULATION = """\
{"device": "d-1", "app": "shop", "os": "android", "tasks": {"shop/ipv": "v2"}}
{"device": "d-2", "app": "shop", "os": "ios", "user": "u-2"}
{"device": "d-3", "app": "shop", "os": "ios"}

{"device": "d-4", "app": "read", "os": "android"}
{"device": "d-9", "app": "shop", "os": "android"}
"""
SERVICE = """\
apiVersion: walle/v1
kind: ReleaseService
metadata: {name: s}
spec: {attributes: {file: users.csv}}
"""


@pytest.fixture
def folder(tmp_path):
    for name, text in (
        ("release.yaml", RELEASE),
        ("other.yaml", OTHER),
        ("policy.yaml", POLICY),
        ("population.jsonl", POPULATION),
        ("service.yaml", SERVICE),
        ("users.csv", "user,region\nu-2,cn-east\n"),
    ):
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def dry_run(folder, capsys, monkeypatch):
    monkeypatch.delenv("WALLE_RELEASES", raising=False)

    def run(*arguments):
        parser = argparse.ArgumentParser()
        add(parser.add_subparsers())
        population = ["--population", str(folder / "population.jsonl")]
        service = ["--attributes", str(folder / "service.yaml")]
        options = parser.parse_args(["dry-run", *population, *service, *map(str, arguments)])
        assert options.run(options) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def ran(dry_run, folder):
    return lambda *arguments: dry_run(folder / "release.yaml", "--alone", *arguments)


@pytest.fixture
def store(folder):
    """With v1 for everybody, and release ``first`` of v3, of higher priority, done for d-1."""
    store = SqliteStore(folder / "releases.db")
    commands = ReleaseCommands(store, "ann")
    for version in ("v1", "v2", "v3"):
        commands.publish("shop/ipv", version, VersionFiles(()))
    commands.publish("read/x", "v7", VersionFiles(()))
    commands.adopt("shop/ipv", "v1")
    commands.adopt("read/x", "v7")
    commands.create(load_single(folder / "other.yaml", Release))
    while commands.advance("first").is_open:
        pass
    yield store
    store.close()


def test_it_says_who_would_get_a_release_alone_and_why(ran):
    region = "any(os is android, region is cn-*) is not known"
    assert ran().splitlines() == [
        "2 of 5 devices would get shop/ipv@v2 by release r1 at stage full, 1 have it",
        "        2  shop/ipv@v2 by release r1, 1 have it (all conditions are met): d-1, d-2",
        f"        1  shop/ipv: keep what they have (r1: {region}): d-3",
        "        1  shop/ipv: keep what they have (r1: app is shop is not met): d-4",
        "        1  shop/ipv: keep what they have (r1: exclude(device is d-9) is not met): d-9",
    ]
    found = json.loads(ran("--json"))
    assert (found["devices"], found["would_get"], found["has_it"]) == (5, 2, 1)
    assert found["groups"][0]["examples"] == ["d-1", "d-2"]


def test_with_a_store_others_come_first_and_the_rest_gets_the_stable_version(
    dry_run, folder, store
):
    given = (folder / "release.yaml", "--store", folder / "releases.db")
    lines = dry_run(*given).splitlines()
    assert lines[0].startswith("1 of 5 devices would get shop/ipv@v2 by release r1")
    assert (
        "shop/ipv@v3 by release first (all conditions are met, and it comes before r1): d-1"
        in lines[1] + lines[2] + lines[3]
    )
    assert any(
        "shop/ipv@v1 the stable version (first: device is d-1 is not met; r1: app is shop is not "
        "met): d-4" in line
        for line in lines
    )
    listed = [json.loads(line) for line in dry_run(*given, "--list", "--json").splitlines()]
    assert [(each["device"], each["version"], each["release"]) for each in listed] == [
        ("d-1", "v3", "first"),
        ("d-2", "v2", "r1"),
        ("d-3", "v1", ""),
        ("d-4", "v1", ""),
        ("d-9", "v1", ""),
    ]
    assert "d-2  shop/ipv  v2  r1  first: device is d-1 is not met; r1: all" in dry_run(
        *given, "--list"
    )


def test_without_a_file_it_says_what_is_offered_now_of_all_tasks(dry_run, folder, store):
    lines = dry_run("--store", folder / "releases.db").splitlines()
    assert lines[0] == "5 devices, 2 released tasks"
    assert "read/x@v7 the stable version (no release of the task is offered)" in lines[1]
    for option in ("--full", "--alone", "--percent=3"):
        with pytest.raises(SystemExit):
            dry_run("--store", folder / "releases.db", option)


@pytest.mark.parametrize("stage", [(), ("--percent", "40"), ("--beta",)])
def test_what_it_says_is_what_the_index_gives_once_the_release_is_there(
    dry_run, folder, store, stage
):
    text = RELEASE.replace("  policy:", "  beta: {devices: [d-4, d-9, d-2]}\n  policy:")
    text = text.replace("  policy:", "  gray: [{percent: 40}]\n  policy:")
    (folder / "release.yaml").write_text(text)
    given = (folder / "release.yaml", "--store", folder / "releases.db")
    said = [json.loads(line) for line in dry_run(*given, *stage, "--list", "--json").splitlines()]
    commands = ReleaseCommands(store, "ann")
    commands.create(load_single(folder / "release.yaml", Release))
    for _ in range({(): 3, ("--beta",): 1}.get(stage, 2)):
        commands.advance("r1")
    with store.reading() as reading:
        table = reading.table()
    sources = Sources(load_single(folder / "service.yaml", ServiceDefinition).spec.attributes)
    sources.refresh()
    index = ReleaseIndex(table, sources)
    for each in said:
        [line] = [line for line in POPULATION.splitlines() if f'"{each["device"]}"' in line[:20]]
        fields = json.loads(line)
        profile = DeviceProfile(**fields)
        offers = [tuple(offer) for offer in index.decide(profile) if offer.task == "shop/ipv"]
        has_it = each["has_it"]
        assert offers == ([] if has_it else [("shop/ipv", each["version"], each["release"])])


def test_a_device_without_the_code_of_its_interpreter_gets_no_version_of_it(dry_run, folder, store):
    commands = ReleaseCommands(store, "ann")
    package = PushedFile("s/t.walle", "s/t.walle", "0" * 64, 5)
    commands.publish("shop/ipv", "v5", VersionFiles((package,), interpreters=("cpython-314",)))
    (folder / "release.yaml").write_text(RELEASE.replace("v2", "v5"))
    lines = [
        json.dumps({"device": f"i-{each}", "app": "shop", "os": "android", "interpreter": each})
        for each in ("cpython-313", "cpython-314")
    ]
    (folder / "population.jsonl").write_text("\n".join(lines))
    given = (folder / "release.yaml", "--store", folder / "releases.db", "--list", "--json")
    found = [json.loads(line) for line in dry_run(*given).splitlines()]
    assert [(each["device"], each["version"]) for each in found] == [
        ("i-cpython-313", "v1"),
        ("i-cpython-314", "v5"),
    ]


def test_one_in_progress_is_taken_as_superseded_and_that_is_said(dry_run, folder, store):
    (folder / "third.yaml").write_text(OTHER.replace("first", "third").replace("d-1", "d-2"))
    commands = ReleaseCommands(store, "ann")
    commands.create(load_single(folder / "third.yaml", Release))
    commands.advance("third")
    release = folder / "release.yaml"
    release.write_text(RELEASE.replace("v2", "v8"))
    text = dry_run(release, "--store", folder / "releases.db")
    assert "note: release 'third' of shop/ipv@v3 is in progress: taken as ended" in text
    assert "note: shop/ipv@v8 is not published: create will ask for it" in text
    assert "by release third" not in text
    release.write_text(RELEASE.replace("r1", "first"))
    assert "create will ask for another name" in dry_run(release, "--store", folder / "releases.db")


def test_a_store_or_leaving_it_out_is_asked_for(dry_run, folder):
    with pytest.raises(ServiceUnreachableError, match="WALLE_SERVICE, or --alone"):
        dry_run(folder / "release.yaml")


@pytest.mark.parametrize("file", [(), ("release.yaml",)])
def test_a_store_with_operators_is_asked_with_a_token(dry_run, folder, store, file):
    key = SigningKey.create("shop")
    key.write(folder / "signing.json", folder / "keys.json")
    (folder / "eve.token").write_text(key.sign("viewer", "eve"))
    spec = {"keys": str(folder / "keys.json"), "issuer": "shop"}
    demand_operators(store, OperatorsSpec.model_validate(spec))
    given = (*(folder / each for each in file), "--store", folder / "releases.db")
    with pytest.raises(IdentityError, match=r"no token.*give --token"):
        dry_run(*given)
    assert dry_run(*given, "--token", folder / "eve.token")
    assert dry_run(*given, "--operator-key", folder / "signing.json")


def test_the_former_name_of_the_file_of_attributes_is_understood(ran, folder, monkeypatch):
    (folder / "other.yaml").write_text(SERVICE.replace("users.csv", "others.csv"))
    (folder / "others.csv").write_text("user,region\nu-2,us-east\n")
    assert ran().startswith("2 of 5")
    assert ran("--attributes", folder / "other.yaml").startswith("1 of 5")
    parser = argparse.ArgumentParser()
    add(parser.add_subparsers())
    given = ["dry-run", "--population", str(folder / "population.jsonl"), "--alone"]
    given += [str(folder / "release.yaml"), "--service", str(folder / "other.yaml"), "--list"]
    options = parser.parse_args(given)
    assert options.run(options) == 0
    assert (options.attributes, options.service) == (folder / "other.yaml", "")


def test_a_policy_is_judged_by_itself(dry_run, folder):
    lines = dry_run(folder / "policy.yaml").splitlines()
    assert lines == [
        "4 of 5 devices would be admitted by policy some, 0 have it",
        "        4  admitted (all conditions are met): d-1, d-2, d-3, d-9",
        "        1  not admitted (some: app is shop is not met): d-4",
    ]
    assert dry_run(folder / "policy.yaml", "--percent", "0").startswith("0 of 5")
    with pytest.raises(SpecFileError, match="a Policy has no beta"):
        dry_run(folder / "policy.yaml", "--beta")


def test_it_explains_each_condition_for_one_device(ran):
    lines = ran("--device", "d-3").splitlines()
    assert lines[0].startswith("device d-3: shop/ipv: keep what they have (r1: any(")
    assert lines[1] == "  release r1: no"
    assert "no        os is android (has ios)" in lines[6]
    found = json.loads(ran("--device", "d-1", "--json"))
    assert (found["version"], found["asked"][0]["inner"][1]["found"]) == ("v2", "shop")
    with pytest.raises(RefNotFoundError, match="no device 'd-x'"):
        ran("--device", "d-x")


def test_at_a_gray_step_a_share_is_in(ran):
    assert ran("--percent", "0").startswith("0 of 5")
    assert ran("--percent", "100", "--salt", "x").startswith("2 of 5")
    with pytest.raises(SystemExit):
        ran("--percent", "101")
    with pytest.raises(SpecFileError, match=r"'r1' has no spec\.beta"):
        ran("--beta")


def test_a_release_is_read_as_create_reads_it(ran, dry_run, folder):
    (folder / "release.yaml").write_text(RELEASE.replace("version: v2", "version: v2\n  stps: 1"))
    with pytest.raises(SpecFileError, match=r"release\.yaml:7:3: spec\.stps: unknown key"):
        ran()
    (folder / "release.yaml").write_text(
        RELEASE.replace("version: v2", "version: v2\n  simulation: {kinds: k, events: e}")
    )
    with pytest.raises(SpecFileError, match="there is no file") as caught:
        ran()
    assert caught.value.exit_code == 3
    with pytest.raises(SpecFileError, match="expected kind Release or Policy"):
        dry_run(folder / "service.yaml")


def test_a_file_of_ids_that_cannot_be_read_is_an_error(ran, folder):
    text = RELEASE.replace("{devices: [d-9]}", "{devices: {file: none.txt}}")
    (folder / "release.yaml").write_text(text)
    with pytest.raises(SpecFileError, match=r"needs: .*none\.txt: No such file"):
        ran()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"device": "d"}\n{"device": 3}\n', r"population\.jsonl:2:1: not a profile of a device"),
        (
            '{"device": "d"}\n\n{"device": "d", "os": "x"}\n',
            r"population\.jsonl:3:1: device 'd' is in line 1 already",
        ),
        ("\n", "the file has no device"),
        ('{"device": "d"}\n{"device": "user:ann"}\n', "cannot begin with 'user:'"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_population_that_is_none_is_refused(ran, folder, text, message):
    path = folder / "population.jsonl"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(SpecFileError, match=message):
        ran("--list")


def test_a_hold_out_keeps_the_version_before_at_full(dry_run, folder, store):
    (folder / "release.yaml").write_text(f"{RELEASE}  holdOut: 50\n")
    people = [DeviceProfile(f"d-{number}", "shop", os="android") for number in range(100, 150)]
    lines = [json.dumps({"device": each.device, "app": "shop", "os": "android"}) for each in people]
    (folder / "population.jsonl").write_text("\n".join(lines))
    given = (folder / "release.yaml", "--store", folder / "releases.db", "--json")
    found = {each["version"]: each for each in json.loads(dry_run(*given))["groups"]}
    assert found["v1"]["devices"] + found["v2"]["devices"] == 50
    assert 10 < found["v1"]["devices"] < 40
    assert "r1: full: the first 50 % is not met" in found["v1"]["why"]
    # where there is no version before nobody is held out
    assert json.loads(dry_run(*given[:1], "--alone", "--json"))["would_get"] == 50
