"""Task packages that are refused, and what cannot be packed: one line each, never a crash."""

import hashlib
import io
import json
import zipfile

import pytest

from walle_stream.errors import PackageError, ScriptError
from walle_stream.spec.models import RESOURCE_NAME_PATTERN
from walle_stream.testing.attacks import ATTACKS, LOADED
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.package import build as package_build
from walle_stream.vm.package.build import build_package
from walle_stream.vm.package.reader import (
    CURRENT_TAG,
    MANIFEST,
    RESOURCE_NAME,
    SCRIPT,
    SCRIPT_MAX_BYTES,
    SEAL,
    PackagedTask,
    read_package,
)

SOURCE = "def run(ctx, page):\n    ctx.emit({})\n"
LIMITS = RunLimits(1_000, 10, 5, 2_000, 2, 0, 9_999)
TASK = PackagedTask("t", "v1", 1, "t.py", (("page_exit",),), None, {}, LIMITS)


@pytest.fixture(scope="module")
def data():
    return build_package(TASK, SOURCE, {"b/model.bin": b"\0" * 5000, "a.txt": b"hello"})


def repacked(data, change, *, seal=True):
    """The package with its members changed, sealed anew."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist()]
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for info, content in change(members):
            archive.writestr(info, content)
        archive.comment = SEAL + bytes(64)
    made = stream.getvalue()[:-64]
    return made + (hashlib.sha256(made).hexdigest().encode() if seal else data[-64:])


def with_manifest(data, change):
    def edit(members):
        manifest = json.loads(members[0][1])
        change(manifest)
        return [(MANIFEST, json.dumps(manifest).encode()), *members[1:]]

    return repacked(data, edit)


# scripts and resources that cannot be packed


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("x = 1", r"^t\.py: task 't': .*def run"),
        ("import os\ndef run(ctx, page): pass", r"^t\.py:1: task 't': imports 'os'"),
        ("def run(ctx, page)\n  pass", r"^t\.py:1:\d+: task 't': is not valid Python"),
    ],
)
def test_a_script_that_may_not_run_is_not_packed(source, words):
    with pytest.raises(ScriptError, match=words):
        build_package(TASK, source)


NAMES = ["", "/a", "../a", "a/../b", "a//b", "a/", ".a", "a\\b", "a\n", "ä", "a" * 201, "a b", "-a"]


@pytest.mark.parametrize("name", NAMES)
def test_a_resource_has_a_plain_relative_name(name):
    with pytest.raises(PackageError, match="cannot be named"):
        build_package(TASK, SOURCE, {name: b""})


def test_the_rule_for_names_is_that_of_the_definition():
    assert f"^{RESOURCE_NAME.pattern}$" == RESOURCE_NAME_PATTERN


def test_more_than_a_reader_takes_is_not_packed(monkeypatch):
    monkeypatch.setattr(package_build, "PACKAGE_MAX_BYTES", 50_000)
    with pytest.raises(PackageError, match=r"holds at most 50000 bytes .* found 6\d{4} in 3 "):
        build_package(TASK, SOURCE, {"a": bytes(60_000)})


@pytest.mark.parametrize("triggers", [[], [[]], [["a"], []], [[""]], [["a"] * 65], [["a" * 257]]])
def test_a_trigger_that_no_definition_could_have_is_refused(data, triggers):
    def change(manifest):
        manifest["task"]["triggers"] = triggers

    with pytest.raises(PackageError, match=r"is not a manifest: .*triggers"):
        read_package(with_manifest(data, change))


def test_a_script_larger_than_a_reader_takes_is_not_packed():
    with pytest.raises(PackageError, match=r"script has at most 1048576 bytes, found"):
        build_package(TASK, SOURCE + "#" * SCRIPT_MAX_BYTES)


# packages that are refused


def refused(data):
    with pytest.raises(PackageError) as caught:
        read_package(data)
    assert str(caught.value).startswith("package: ")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("given", [b"", b"PK", b"PK\3\4", b"#!/usr/bin/env python\n" * 99])
def test_what_is_no_package_is_refused(given):
    assert "walle task build" in refused(given)


def test_a_file_that_is_not_there_or_a_folder_is_refused(tmp_path):
    for path, words in ((tmp_path / "no.walle", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(PackageError, match=words) as caught:
            read_package(path)
        assert caught.value.file == str(path)


def test_a_cut_package_is_refused(data):
    for size in (len(data) - 1, len(data) // 2, 100):
        assert "ends without its seal" in refused(data[:size])


def test_every_byte_is_under_the_seal(data):
    assert "expected the seal" in refused(
        repacked(data, lambda members: [*members[:-1], (members[-1][0], bytes(5001))], seal=False)
    )
    at = data.index(b"PK\1\2") + 38  # a mode, which nobody reads
    assert "expected the seal" in refused(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


@pytest.mark.parametrize("name", [SCRIPT, "resources/a.txt"])
def test_a_missing_member_is_named(data, name):
    def change(members):
        return [(i, c) for i, c in members if i.filename != name]

    assert refused(repacked(data, change)).startswith(f"package: {name}: is missing")


@pytest.mark.parametrize(
    "name", ["x", "resources/c", "code/x.bin", "../up", "/abs", "manifest.json/"]
)
def test_a_member_that_the_manifest_does_not_know_is_named(data, name):
    text = refused(repacked(data, lambda members: [*members, (name, b"x")]))
    assert text.startswith(f"package: {name}: is not one of its members")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_is_there_twice_is_refused(data):
    assert "each once" in refused(
        repacked(data, lambda members: [*members, ("a", b""), ("a", b"")])
    )


def test_a_member_that_inflates_to_more_than_it_says_is_refused(data):
    def bomb(members):
        return [
            (i, bytes(300 * 2**20) if i.filename == "resources/a.txt" else c) for i, c in members
        ]

    made = repacked(data, bomb)
    assert len(made) < 2**20
    assert "bytes inflated, found 314" in refused(made)
    lying = made.replace((300 * 2**20).to_bytes(4, "little"), (5).to_bytes(4, "little"))
    lying = lying[:-64] + hashlib.sha256(lying[:-64]).hexdigest().encode()
    assert "resources/a.txt" in refused(lying)


def test_many_members_are_refused_before_they_are_read(data):
    many = [(f"resources/{n}", b"") for n in range(1_100)]
    assert "members" in refused(repacked(data, lambda members: members + many))
    huge = [(f"resources/{n}", b"") for n in range(20_000)]
    assert "has a directory of" in refused(repacked(data, lambda members: members + huge))


def test_stored_and_encrypted_members_are_refused(data):
    def stored(members):
        members[1][0].compress_type = zipfile.ZIP_STORED
        return members

    assert "is not simply deflated" in refused(repacked(data, stored))


def test_the_manifest_comes_first(data):
    assert "as first member" in refused(repacked(data, lambda members: members[::-1]))
    assert "as first member" in refused(repacked(data, lambda members: members[1:]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.update(format=1), "expected format 2, found 1: install the version"),
        (lambda m: m.update(format="2"), "expected format 2, found '2'"),
        (lambda m: m.update(format=True), "expected format 2, found True"),
        (lambda m: m.pop("format"), "expected format 2, found None"),
        (lambda m: m.update(more=1), "unknown field `more`"),
        (lambda m: m.pop("task"), "missing required field `task`"),
        (lambda m: m["task"].update(name="../x"), "$.task.name"),
        (lambda m: m["task"]["limits"].update(emits=-1), "$.task.limits.emits"),
        (lambda m: m["task"].update(entry="main"), "Invalid enum value 'main'"),
        (lambda m: m.update(interpreters=[]), "$.interpreters"),
        (lambda m: m.update(interpreters=[CURRENT_TAG, 5]), "$.interpreters"),
        (lambda m: m["resources"].update({"../x": 1}), "named"),
        (lambda m: m["resources"].update({"a.txt": 6}), "expected 6 bytes, found 5"),
        (lambda m: m["resources"].update({"a.txt": -5}), "$.resources"),
    ],
)
def test_a_manifest_that_is_wrong_is_refused(data, change, words):
    text = refused(with_manifest(data, change))
    assert words in text
    assert "manifest.json" in text or "resources/" in text


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"5", b"\xff", b'{"format":1}', b"[" * 50_000])
def test_a_manifest_that_is_none_is_refused(data, text):
    assert MANIFEST in refused(repacked(data, lambda members: [(MANIFEST, text), *members[1:]]))


def with_script(data, content):
    return repacked(
        data, lambda members: [(i, content if i == members[1][0] else c) for i, c in members]
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff", "script.py: is not UTF-8"),
        (b" " * (SCRIPT_MAX_BYTES + 1), "script.py: expected at most 1048576 bytes, found 1048577"),
    ],
)
def test_a_script_that_is_none_is_refused(data, content, words):
    assert words in refused(with_script(data, content))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("", "has no function 'run'"),
        ("import os" + "\n" + SOURCE, "t.py:1: task 't': imports 'os'"),
        ("def run(ctx, page)" + "\n  pass", "t.py:1:19: task 't': is not valid Python"),
        ("x = " + "-" * 100_000 + "1" + "\n" + SOURCE, "t.py"),
        ("\0", "is not valid Python"),
    ],
)
def test_a_script_that_no_builder_let_through_is_refused_by_the_gate_of_the_device(
    data, source, words
):
    package = read_package(with_script(data, source.encode()))
    with pytest.raises(PackageError) as caught:
        package.program()
    assert str(caught.value).startswith("package: t.py")
    assert words in str(caught.value)
    assert (caught.value.exit_code, caught.value.member) == (3, SCRIPT)


@pytest.mark.parametrize(
    "attack", [each for each in ATTACKS if each.outcome == LOADED], ids=lambda each: each.name
)
def test_an_attack_that_is_refused_as_a_script_is_refused_as_a_package(data, attack):
    package = read_package(with_script(data, attack.source.encode()))
    with pytest.raises(PackageError, match=r"^package: t\.py:\d+"):
        package.program()


def test_a_package_for_a_newer_guest_is_refused_when_it_is_asked_for(data):
    package = read_package(with_manifest(data, lambda manifest: manifest.update(guestApi=2)))
    with pytest.raises(PackageError, match="expected guest API 1 or older, found 2: install"):
        package.program()
