"""Versions built from tags: the same bytes everywhere, and nothing that a tree should not have."""

import hashlib
import json
import shutil
import subprocess
import sys

import pytest

from walle_deploy.model.names import TaskRef
from walle_deploy.tasks import trees
from walle_deploy.tasks.building import build_version, write_version
from walle_deploy.tasks.cloning import checkout_task
from walle_deploy.tasks.groups import Group
from walle_deploy.tasks.history import list_tasks
from walle_stream.errors import (
    GitError,
    PackageError,
    RefNotFoundError,
    SpecFileError,
    WalleError,
)
from walle_stream.vm.package.reader import read_package

pytestmark = pytest.mark.integration

FILES = """\
apiVersion: walle/v1
kind: TaskFiles
spec:
  exclusive:
    - {name: profile, files: "users/*.bin", by: user}
    - {name: model/own, files: "devices/*/../x"}
"""
OWN = FILES.replace("devices/*/../x", "devices/m-*.onnx")


def task_with(bench, folder, **keys):
    text = (folder / "task.yaml").read_text()
    more = "".join(f"  {name}: {json.dumps(value)}\n" for name, value in keys.items())
    return {"task.yaml": text + more}


@pytest.fixture
def version(bench):
    folder = bench.begin()
    files = task_with(bench, folder, resources={"w": "words.txt"}, config={"gap": 5})
    files |= {
        "words.txt": "a b",
        "files.yaml": OWN,
        "users/ada.bin": b"\0ada\r\n",
        "users/bob.bin": "bob",
        "devices/m-d 1.onnx": "one",
        ".gitattributes": "* text=auto eol=crlf\nwords.txt export-ignore ident\n",
    }
    return bench.version(folder, "v2", files)


def test_a_version_is_a_package_and_the_files_of_its_audiences(bench, version):
    built = build_version(bench.group, version)
    task = read_package(built.package).manifest.task
    assert (task.name, task.version, task.config) == ("ipv", "v2", {"gap": 5})
    assert read_package(built.package).resource("w") == b"a b"
    (package,) = built.files.shared
    assert package.target == package.url == "shop/ipv/v2/ipv-v2.walle"
    assert package.sha256 == hashlib.sha256(built.package).hexdigest()
    assert package.size_bytes == len(built.package)
    assert sorted(built.files.exclusive) == ["d 1", "user:ada", "user:bob"]
    (own,) = built.files.exclusive["user:bob"]
    assert (own.audience, own.resource, own.size_bytes) == ("exclusive", "profile", 3)
    assert own.target == f"shop/ipv/v2/exclusive/profile/{hashlib.sha256(b'bob').hexdigest()}"
    assert "bob" not in own.target
    assert built.contents[own.target].read_bytes() == b"bob"
    assert built.commit == bench.git("rev-parse", "ipv/v2^{commit}")


def test_the_same_tag_gives_the_same_bytes_from_any_clone_folder_and_process(
    bench, version, monkeypatch, tmp_path
):
    first = build_version(bench.group, version)
    shutil.copytree(tmp_path / "group", tmp_path / "elsewhere/group")
    other = Group.parse(f"file://{tmp_path}/elsewhere/group")
    out = tmp_path / "out"
    code = (
        "import sys, pathlib; from walle_deploy.tasks.building import *; "
        "from walle_deploy.tasks.groups import Group; from walle_deploy.model.names import TaskRef;"
        "b = build_version(Group.parse(sys.argv[1]), TaskRef.parse('shop/ipv@v2'));"
        "write_version(b, pathlib.Path(sys.argv[2]))"
    )
    monkeypatch.setenv("WALLE_CACHE", str(tmp_path / "cache-2"))
    command = [sys.executable, "-c", code, other.address, out]
    subprocess.run(command, check=True, cwd=tmp_path / "elsewhere")
    here = write_version(first, tmp_path / "here")
    names = [path.relative_to(tmp_path / "here") for path in here]
    assert [path.read_bytes() for path in here] == [(out / name).read_bytes() for name in names]
    assert len(names) == 5


def test_what_was_altered_in_the_cache_is_made_again(bench, version):
    first = build_version(bench.group, version)
    target = first.files.exclusive["user:bob"][0].target
    first.contents[target].write_bytes(b"eve")
    (first.contents[target].parent / "eve.bin").write_bytes(b"eve")
    again = build_version(bench.group, version)
    assert again.contents[target].read_bytes() == b"bob"
    assert again.files == first.files


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([("120000", "link", b"/etc/passwd")], "'link' is a symbolic link: only plain files"),
        ([("160000", "sub", "1" * 40)], "'sub' is a submodule"),
        ([("100644", "-rf", b"x")], "'-rf' has a name that a command would take for an option"),
        ([("100644", "a\\..\\b", b"x")], "has a name with characters that no file"),
        ([("100644", "a\nb", b"x")], "has a name with characters that no file"),
        ([("100644", b"\xff.bin".decode(errors="surrogateescape"), b"x")], "is not UTF-8"),
        ([("100644", "n" * 256, b"x")], "has a name of more than"),
        (
            [("100644", "m.bin", b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n")],
            "'m.bin' is a git-lfs pointer, not the file: commit the file itself",
        ),
    ],
)
def test_a_hostile_tree_is_refused_in_one_line(bench, entries, words):
    bench.begin()
    ref = bench.push_tree(entries)
    with pytest.raises(GitError, match=r"^shop/ipv@v9: ") as caught:
        build_version(bench.group, ref)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    if "lfs" not in words:  # a pointer is a small text, to be looked at and mended
        with pytest.raises(GitError):
            checkout_task(bench.group, ref, bench.root / "out")


@pytest.mark.parametrize("name", ["..", ".git", ".GIT", "."])
def test_a_tree_that_leads_out_of_its_folder_is_refused(bench, name):
    bench.begin()
    blob = bench.git("hash-object", "-w", "--stdin", given=b"evil")
    entry = f"100644 {name}\0".encode() + bytes.fromhex(blob)
    command = ("hash-object", "-w", "-t", "tree", "--literally", "--stdin")
    tree = bench.git(*command, given=entry)
    commit = bench.git("commit-tree", tree, "-m", "any")
    bench.git("tag", "-a", "-m", "any", "ipv/v9", commit)
    with pytest.raises(GitError, match=r"git fetch|leads out of the task's folder"):
        build_version(bench.group, TaskRef("shop", "ipv", "v9"))
    assert not [path for path in bench.root.rglob("*") if path.is_file() and path.name == name]


def test_a_bomb_is_refused_before_it_is_inflated(bench, monkeypatch):
    bench.begin()
    ref = bench.push_tree([("100644", "bomb", bytes(3_000_000))])
    monkeypatch.setattr(trees, "FILE_MAX_BYTES", 1_000_000)
    with pytest.raises(GitError, match="'bomb' has 3000000 bytes, at most 1000000: split it"):
        build_version(bench.group, ref)
    monkeypatch.setattr(trees, "FILE_MAX_BYTES", 10_000_000)
    monkeypatch.setattr(trees, "TREE_MAX_BYTES", 1_000_000)
    with pytest.raises(GitError, match="1 files of 3000000 bytes"):
        build_version(bench.group, ref)


def test_a_definition_reaches_nothing_outside_its_commit(bench, monkeypatch, tmp_path):
    (tmp_path / "secret").write_text("secret")
    monkeypatch.setenv("SECRET", "secret")
    folder = bench.begin()
    text = (folder / "task.yaml").read_text()
    script = (folder / "script.py").read_bytes()
    for number, (wrong, words) in enumerate(
        [
            (text + "  resources: {x: ../../../secret}\n", "is not among the files of the commit"),
            (text + f"  resources: {{x: {tmp_path}/secret}}\n", "is not among the files"),
            (text + "  config: {x: '${SECRET}'}\n", "SECRET"),
            (text.replace("name: ipv", "name: otto"), "metadata.name is 'otto', but the branch is"),
        ]
    ):
        entries = [("100644", "task.yaml", wrong.encode()), ("100644", "script.py", script)]
        ref = bench.push_tree(entries, f"v{number}")
        with pytest.raises(SpecFileError, match=rf"^shop/ipv@v{number}:task\.yaml") as caught:
            build_version(bench.group, ref)
        assert words in str(caught.value)
    ref = bench.push_tree([("100644", "script.py", script)], "v8")
    with pytest.raises(SpecFileError, match=r"^shop/ipv@v8:task\.yaml: is missing"):
        build_version(bench.group, ref)


def test_a_file_of_one_user_cannot_be_in_the_package_of_all(bench):
    folder = bench.begin()
    files = task_with(bench, folder, resources={"p": "users/ada.bin"})
    files |= {"files.yaml": OWN, "users/ada.bin": "a", "devices/m-1.onnx": "1"}
    with pytest.raises(SpecFileError, match=r"users/ada.bin is for user:ada alone, but task.yaml"):
        bench.commit(folder, files)


def test_what_is_no_version_is_said(bench, monkeypatch):
    bench.begin()
    bench.git("tag", "ipv/light", "ipv")
    with pytest.raises(RefNotFoundError, match="lightweight"):
        build_version(bench.group, TaskRef("shop", "ipv", "light"))
    with pytest.raises(RefNotFoundError, match="names no version"):
        build_version(bench.group, TaskRef("shop", "ipv"))
    (task,) = list_tasks(bench.group, "shop")
    assert task.versions == ()
    url = Group.parse(f"file://{bench.root}/nowhere")
    with pytest.raises(RefNotFoundError, match="no scenario 'shop'"):
        build_version(url, TaskRef("shop", "ipv", "v1"))
    monkeypatch.setenv("PATH", str(bench.root))
    with pytest.raises(GitError, match=r"git command cannot be run"):
        build_version(bench.group, TaskRef("shop", "ipv", "v1"))


def test_a_place_that_cannot_be_written_is_named(bench, version, tmp_path):
    built = build_version(bench.group, version)
    (tmp_path / "taken").write_text("")
    with pytest.raises(PackageError, match="give another -o"):
        write_version(built, tmp_path / "taken")


def test_options_hidden_in_names_reach_no_git(bench, tmp_path):
    def build(text):
        build_version(Group.parse(text), TaskRef("shop", "ipv", "v1"))

    for text in ("--upload-pack=touch x", "ext::sh -c touch% x", "ssh://-oProxyCommand=x/y"):
        with pytest.raises(WalleError):
            build(text)
    assert not (tmp_path / "x").exists()


def test_a_repository_that_was_damaged_is_said(bench, version):
    blob = bench.git("rev-parse", "ipv/v2:words.txt")
    path = bench.bare / "objects" / blob[:2] / blob[2:]
    path.chmod(0o644)
    path.write_bytes(b"damaged")
    with pytest.raises(GitError, match=r"^git fetch: "):
        build_version(bench.group, version)
