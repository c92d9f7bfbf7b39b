"""The hook that keeps versions where they are, whatever is pushed, and how it comes there."""

import hashlib
import shutil
import subprocess

import pytest

from walle_deploy.tasks.tagging import tag_version

pytestmark = pytest.mark.integration

REFUSED = "refs/tags/ipv/v1 is a version, which cannot be moved or deleted: make another one"

PACK = b"PACK\0\0\0\2\0\0\0\0"
EMPTY_PACK = PACK + hashlib.sha1(PACK, usedforsecurity=False).digest()


@pytest.fixture
def folder(bench):
    folder = bench.begin()
    bench.version(folder, "v1")
    return folder


def refused(bench, folder, *arguments):
    """What somebody hears who pushes with plain git; the tag is where it was."""
    before = bench.git("rev-parse", "refs/tags/ipv/v1")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        bench.git("push", "origin", *arguments, folder=folder)
    assert bench.git("rev-parse", "refs/tags/ipv/v1") == before
    return caught.value.stderr.decode()


def test_plain_git_deletes_no_version(bench, folder):
    assert REFUSED in refused(bench, folder, ":refs/tags/ipv/v1")
    assert REFUSED in refused(bench, folder, "--force", "--delete", "ipv/v1")
    assert REFUSED in refused(bench, folder, "--prune", "refs/tags/none/*:refs/tags/*")


def test_plain_git_moves_no_version(bench, folder):
    bench.commit(folder, {"a.txt": "a"})
    bench.git("tag", "-f", "-a", "-m", "moved", "ipv/v1", folder=folder)
    assert REFUSED in refused(bench, folder, "--force", "ipv/v1")
    assert REFUSED in refused(bench, folder, "--mirror")
    assert REFUSED in refused(bench, folder, "--force", "HEAD:refs/tags/ipv/v1")
    # a version of its own, and a branch, are pushed as ever
    bench.git("tag", "-a", "-m", "next", "ipv/v2", folder=folder)
    bench.git("push", "origin", "ipv/v2", "HEAD:refs/heads/other", folder=folder)


@pytest.mark.parametrize("name", ["refs/tags/ipv/v1", "refs/heads/ipv"])
@pytest.mark.parametrize(
    ("old", "new"), [("0", "0"), ("1", "0"), ("0", "other")], ids=["none", "wrong", "new"]
)
def test_a_push_that_lies_about_what_is_there_changes_nothing(bench, folder, name, old, new):
    # as no git sends it: from nothing to nothing is a deletion that git's own settings let pass
    before = bench.git("for-each-ref")
    other = bench.git("commit-tree", "ipv^{tree}", "-m", "other")
    wanted = other if new == "other" else new * 40
    line = f"{old * 40} {wanted} {name}\0 report-status delete-refs\n".encode()
    pack = b"" if new == "0" else EMPTY_PACK
    given = f"{len(line) + 4:04x}".encode() + line + b"0000" + pack
    assert f"ng {name} " in bench.git("receive-pack", bench.bare, given=given)
    assert bench.git("for-each-ref") == before


def test_a_repository_of_before_gets_the_hook_with_the_next_push(bench, folder):
    hook = bench.bare / "hooks/update"
    made = hook.read_text()
    for spoil in (
        lambda: shutil.rmtree(hook.parent),
        lambda: hook.chmod(0o644),
        lambda: hook.write_text("#!/bin/sh\n# written by walle: an older version\n"),
    ):
        spoil()
        bench.commit(folder, {"a.txt": f"{spoil}"})
        assert hook.read_text() == made
        assert REFUSED in refused(bench, folder, ":refs/tags/ipv/v1")
    assert [path.name for path in hook.parent.iterdir()] == ["update"]


def test_no_tag_stands_in_the_way_of_a_tasks_versions(bench, folder):
    bench.git("tag", "-a", "-m", "x", "otto", folder=folder)
    assert "refs/tags/otto is not a version: a tag is named TASK" in refused(bench, folder, "otto")
    for name in ("ipv/v2/x", "ipv/v2/x/y"):
        said = refused(bench, folder, f"HEAD:refs/tags/{name}")
        assert f"refs/tags/{name} is not a version" in said
    tag_version(folder, "v2")


def test_no_branch_stands_in_the_way_of_a_task(bench, folder):
    said = refused(bench, folder, "HEAD:refs/heads/cart/x")
    assert "refs/heads/cart/x is not a task: a branch has no / in its name" in said
    bench.git("push", "origin", "HEAD:refs/heads/cart", "HEAD:refs/notes/x/y", folder=folder)


def test_a_hook_of_others_is_left_alone(bench, folder):
    hook = bench.bare / "hooks/update"
    hook.write_text("#!/bin/sh\nexit 0\n")
    tag_version(folder, "v2")
    assert hook.read_text() == "#!/bin/sh\nexit 0\n"
