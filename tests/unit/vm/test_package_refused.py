"""Task packages that are refused, and what cannot be packed: one line each, never a crash."""

import hashlib
import io
import json
import marshal
import sys
import zipfile

import pytest

from walle_stream.errors import PackageError, ScriptError
from walle_stream.spec.models import RESOURCE_NAME_PATTERN
from walle_stream.vm.package import build as package_build
from walle_stream.vm.package.build import build_package
from walle_stream.vm.package.reader import (
    CURRENT_TAG,
    MANIFEST,
    RESOURCE_NAME,
    SEAL,
    PackagedLimits,
    PackagedTask,
    read_package,
)

SOURCE = "def run(ctx, page):\n    ctx.emit({})\n"
LIMITS = PackagedLimits(1_000, 10, 5, 2_000, 2, 0, 9_999)
TASK = PackagedTask("t", "v1", 1, "t.py", (("page_exit",),), None, {}, LIMITS)
OTHER_TAG = "cpython-313" if CURRENT_TAG == "cpython-314" else "cpython-314"
MODULES = f"code/{CURRENT_TAG}/modules.bin"
SCRIPT = f"code/{CURRENT_TAG}/script.bin"


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
    with pytest.raises(PackageError, match=r"holds at most 50000 bytes .* found 6\d{4} in 4 "):
        build_package(TASK, SOURCE, {"a": bytes(60_000)})


@pytest.mark.parametrize("triggers", [[], [[]], [["a"], []], [[""]], [["a"] * 65], [["a" * 257]]])
def test_a_trigger_that_no_definition_could_have_is_refused(data, triggers):
    def change(manifest):
        manifest["task"]["triggers"] = triggers

    with pytest.raises(PackageError, match=r"is not a manifest: .*triggers"):
        read_package(with_manifest(data, change))


# packages for another place


def test_a_package_of_another_interpreter_says_with_which_to_build(data):
    tag = OTHER_TAG

    def change(manifest):
        manifest["interpreters"] = {tag: manifest["interpreters"].pop(CURRENT_TAG)}
        members = manifest["interpreters"][tag]["members"]
        for name in list(members):
            members[name.replace(CURRENT_TAG, tag)] = members.pop(name)

    def rename(members):
        for info, _ in members:
            info.filename = info.filename.replace(CURRENT_TAG, tag)
        return members

    package = read_package(repacked(with_manifest(data, change), rename))
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for asked in (package.code, package.standard_modules, package.program):
        with pytest.raises(PackageError) as caught:
            asked()
        assert str(caught.value) == (
            f"package: expected code for {CURRENT_TAG}, found {tag}: "
            f"build it with --python {version}"
        )
    assert caught.value.exit_code == 3


def test_bytecode_of_a_preview_of_the_same_version_is_refused(data):
    def change(manifest):
        manifest["interpreters"][CURRENT_TAG]["magic"] = "000d0d0a"

    with pytest.raises(PackageError, match=r"expected bytecode \w{8} of this .* found 000d0d0a"):
        read_package(with_manifest(data, change)).code()


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


def test_an_altered_member_is_named(data):
    def change(members):
        return [(i, c[:-1] + b"!" if i.filename == SCRIPT else c) for i, c in members]

    text = refused(repacked(data, change))
    assert text.startswith(f"package: {SCRIPT}: expected SHA-256 ")
    assert ", found " in text


def test_every_byte_is_under_the_seal(data):
    assert "expected the seal" in refused(repacked(data, lambda members: members, seal=False))
    at = data.index(b"PK\1\2") + 38  # a mode, which nobody reads
    assert "expected the seal" in refused(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


@pytest.mark.parametrize("name", [SCRIPT, MODULES, "resources/a.txt"])
def test_a_missing_member_is_named(data, name):
    def change(members):
        return [(i, c) for i, c in members if i.filename != name]

    assert refused(repacked(data, change)).startswith(f"package: {name}: is missing")


@pytest.mark.parametrize(
    "name", ["x", "resources/c", f"code/{CURRENT_TAG}/x.bin", "../up", "/abs", "manifest.json/"]
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
        (lambda m: m.update(format=2), "expected format 1, found 2: install the version"),
        (lambda m: m.update(format="1"), "expected format 1, found '1'"),
        (lambda m: m.update(format=True), "expected format 1, found True"),
        (lambda m: m.pop("format"), "expected format 1, found None"),
        (lambda m: m.update(more=1), "unknown field `more`"),
        (lambda m: m.pop("task"), "missing required field `task`"),
        (lambda m: m["task"].update(name="../x"), "$.task.name"),
        (lambda m: m["task"]["limits"].update(emits=-1), "$.task.limits.emits"),
        (lambda m: m["task"].update(entry="main"), "Invalid enum value 'main'"),
        (lambda m: m.update(interpreters={}), "found none"),
        (lambda m: m["interpreters"][CURRENT_TAG].update(members={}), "is missing"),
        (lambda m: m["resources"].update({"../x": {"sha256": "0" * 64, "size": 1}}), "named"),
        (lambda m: m["resources"]["a.txt"].update(size=6), "expected 6 bytes, found 5"),
        (lambda m: m["resources"]["a.txt"].update(sha256="0" * 63), "$.resources"),
    ],
)
def test_a_manifest_that_is_wrong_is_refused(data, change, words):
    text = refused(with_manifest(data, change))
    assert words in text
    assert "manifest.json" in text or "resources/" in text or "code/" in text


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"5", b"\xff", b'{"format":1}', b"[" * 50_000])
def test_a_manifest_that_is_none_is_refused(data, text):
    assert MANIFEST in refused(repacked(data, lambda members: [(MANIFEST, text), *members[1:]]))


def test_code_that_is_none_is_refused_when_it_is_asked_for(data):
    for content in (b"", b"x", marshal.dumps((1, 2)), marshal.dumps((1, [], True))):

        def change(manifest, content=content):
            part = manifest["interpreters"][CURRENT_TAG]["members"][SCRIPT]
            part.update(size=len(content), sha256=hashlib.sha256(content).hexdigest())

        def replace(members, content=content):
            return [(i, content if i.filename == SCRIPT else c) for i, c in members]

        package = read_package(repacked(with_manifest(data, change), replace))
        with pytest.raises(PackageError, match=SCRIPT):
            package.program()


def test_a_package_for_a_newer_guest_is_refused_when_it_is_asked_for(data):
    package = read_package(with_manifest(data, lambda manifest: manifest.update(guestApi=2)))
    with pytest.raises(PackageError, match="expected guest API 1 or older, found 2: install"):
        package.code()
