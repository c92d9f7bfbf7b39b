"""Authors on real git: alone, at the same time, and in each other's way."""

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from walle_deploy.model.names import TaskRef
from walle_deploy.tasks.cloning import checkout_task, init_task
from walle_deploy.tasks.committing import commit_folder
from walle_deploy.tasks.differences import diff_versions
from walle_deploy.tasks.history import list_tasks, log_task
from walle_deploy.tasks.mirrors import seen_version
from walle_deploy.tasks.tagging import tag_version
from walle_stream.errors import (
    ConflictError,
    GitError,
    RefNotFoundError,
    ScriptError,
    SpecFileError,
)

pytestmark = pytest.mark.integration

IPV = TaskRef("shop", "ipv")
LINES = "".join(f"# line {number}\n" for number in range(20))


def test_a_task_from_its_beginning_to_a_version_by_hand(walle, bench, tmp_path, monkeypatch):
    monkeypatch.setenv("WALLE_GROUP", bench.group.address)

    def task(*arguments):
        return json.loads(walle("task", *arguments, "--json", cwd=tmp_path).stdout)

    made = task("init", "shop/ipv")
    assert (made["ref"], made["folder"]) == ("shop/ipv", "ipv")
    assert task("test", "ipv")["features"] == 3
    (tmp_path / "ipv/words.txt").write_text("a b\n")
    assert task("commit", "-m", "Add words", "ipv")["files"] == ["words.txt"]
    assert task("commit", "ipv")["files"] == []
    assert task("tag", "v1", "ipv")["ref"] == "shop/ipv@v1"
    (found,) = task("list")["tasks"]
    assert found["task"] == "shop/ipv"
    assert [(each["name"], each["who"]) for each in found["versions"]] == [("v1", "Ada")]
    subjects = [each["subject"] for each in task("log", "shop/ipv@v1")["commits"]]
    assert subjects == ["Add words", "Begin the task shop/ipv"]
    built = task("build", "shop/ipv@v1", "-o", "out")
    assert built["files"]["shared"][0]["target"] == "shop/ipv/v1/ipv-v1.walle"
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == [
        *("ipv-v1.walle", "version.json")
    ]
    for arguments in (("list",), ("log", "shop/ipv"), ("diff", "shop/ipv", "shop/ipv@v1")):
        walle("task", *arguments, cwd=tmp_path)
    refused = walle("task", "tag", "v1", "ipv", cwd=tmp_path, check=False)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (18, 1)
    assert walle("task", "log", "shop/ipw", cwd=tmp_path, check=False).stderr == (
        f"walle: there is no task shop/ipw in {bench.bare}, did you mean 'ipv'?\n"
    )


def test_a_wrong_definition_is_refused_with_its_place_and_changes_nothing(bench, monkeypatch):
    folder = bench.begin()
    before = bench.git("for-each-ref"), bench.git("status", "--porcelain", folder=folder)
    text = (folder / "task.yaml").read_text()
    (folder / "task.yaml").write_text(text.replace("script:", "scrpt:"))
    with pytest.raises(SpecFileError, match=r"^\S*ada/task\.yaml:8:3: .*scrpt.*did you mean"):
        commit_folder(folder)
    monkeypatch.chdir(folder)
    with pytest.raises(SpecFileError, match=r"^task\.yaml:8:3: "):
        commit_folder(folder)
    (folder / "task.yaml").write_text(text)
    (folder / "script.py").write_text("def run(ctx):\n    pass\n")
    with pytest.raises(ScriptError, match=r"^script\.py:1: task 'ipv': 'run'"):
        commit_folder(folder)
    (folder / "script.py").unlink()
    with pytest.raises(SpecFileError, match=r"spec.script: script.py is not among the files"):
        commit_folder(folder)
    bench.git("checkout", "--", ".", folder=folder)
    after = bench.git("for-each-ref"), bench.git("status", "--porcelain", folder=folder)
    assert before == after


def test_a_file_that_git_ignores_is_missed_before_the_commit(bench):
    folder = bench.begin()
    task = (folder / "task.yaml").read_text() + "  resources: {w: weights.bin}\n"
    ignored = (folder / ".gitignore").read_text() + "*.bin\n"
    files = {"task.yaml": task, ".gitignore": ignored, "weights.bin": b"7"}
    with pytest.raises(SpecFileError, match=r"resources\['w'\]: weights.bin is not among .*ignore"):
        bench.commit(folder, files)


def test_who_comes_second_is_told_and_can_go_on_top(bench, somebody):
    ada, bea = bench.begin(), bench.author("bea")
    bench.commit(ada, {"a.txt": LINES}, message="Ada's words")
    somebody("Bea")
    with pytest.raises(
        ConflictError, match=r"\(1; the last by Ada, .*: Ada's words\).*a\.txt.*--re"
    ):
        bench.commit(bea, {"b.txt": "b\n"})
    assert not (bea / "a.txt").exists()
    done = commit_folder(bea, "Bea's", rebase=True)
    assert (done.files, done.is_rebased) == (("b.txt",), True)
    assert (bea / "a.txt").read_text() == LINES
    assert bench.git("status", "--porcelain", folder=bea) == ""
    log = log_task(bench.group, IPV)
    assert [entry.subject for entry in log[:2]] == ["Bea's", "Ada's words"]
    assert [entry.who for entry in log[:2]] == ["Bea", "Ada"]
    checkout_task(bench.group, IPV, ada)
    assert (ada / "b.txt").exists()


def test_changes_of_the_same_lines_are_left_to_git(bench):
    ada, bea = bench.begin(), bench.author("bea")
    bench.commit(ada, {"words.txt": "ada\n", "w.bin": b"\0 ada"})
    mine = {"words.txt": "bea\n", "w.bin": b"\0 bea", "more.txt": "more\n"}
    with pytest.raises(ConflictError, match=r"same lines of w\.bin, words\.txt; nothing of yours"):
        bench.commit(bea, mine, rebase=True)
    assert (bea / "words.txt").read_text() == "bea\n"
    bench.git("add", "--all", folder=bea)
    bench.git("commit", "--quiet", "-m", "Bea's", folder=bea)
    with pytest.raises(subprocess.CalledProcessError):
        bench.git("pull", "--quiet", "--rebase", folder=bea)
    bench.git("checkout", "--theirs", "w.bin", folder=bea)
    (bea / "words.txt").write_text("ada and bea\n")
    bench.git("add", "--all", folder=bea)
    bench.git("-c", "core.editor=true", "rebase", "--continue", folder=bea)
    assert commit_folder(bea).files == ("more.txt", "w.bin", "words.txt")
    assert bench.git("show", "ipv:words.txt") == "ada and bea"


def test_all_of_a_folder_is_committed_from_any_place_in_it(bench, monkeypatch):
    folder = bench.begin()
    (folder / "deep/er").mkdir(parents=True)
    (folder / "top.txt").write_text("top")
    (folder / "deep/er/low.txt").write_text("low")
    monkeypatch.chdir(folder / "deep/er")
    assert commit_folder(Path()).files == ("deep/er/low.txt", "top.txt")
    assert bench.git("status", "--porcelain", folder=folder) == ""


def test_commits_made_with_plain_git_are_pushed_too(bench):
    folder = bench.begin()
    (folder / "more.txt").write_text("more")
    bench.git("add", ".", folder=folder)
    bench.git("commit", "-qm", "By hand", folder=folder)
    with pytest.raises(GitError, match="has commits that"):
        tag_version(folder, "v1")
    assert commit_folder(folder).files == ("more.txt",)
    assert log_task(bench.group, IPV, 1)[0].subject == "By hand"


def test_of_authors_at_the_same_moment_each_commit_stands_and_none_is_lost(bench):
    bench.begin()
    folders = [bench.author(f"author-{number}") for number in range(4)]

    def insist(folder):
        (folder / f"{folder.name}.txt").write_text(folder.name)
        for _ in range(20):
            try:
                return commit_folder(folder, folder.name, rebase=True)
            except ConflictError:
                continue
        return None

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(insist, folders))
    subjects = {entry.subject for entry in log_task(bench.group, IPV)}
    assert subjects == {*(folder.name for folder in folders), "Begin the task shop/ipv"}
    names = bench.git("ls-tree", "--name-only", "ipv").splitlines()
    assert {f"{folder.name}.txt" for folder in folders} <= {*names}


def test_of_two_who_begin_a_task_or_make_a_version_at_once_one_is_told(bench):
    def first(number):
        try:
            return init_task(bench.group, TaskRef("shop", "otto"), bench.root / f"o{number}")
        except ConflictError as error:
            return str(error)

    with ThreadPoolExecutor(2) as pool:
        began = [*pool.map(first, range(2))]
    made = [each for each in began if not isinstance(each, str)]
    # the same person, the very same files: who came second within the same second has what the
    # first one made, and is told otherwise
    assert len({each.commit for each in made}) == 1
    if len(made) == 1:
        made.append(init_task(bench.group, TaskRef("shop", "otto"), bench.root / "later"))

    def tag(started):
        try:
            return tag_version(started.folder, "v1", started.folder.name)
        except ConflictError as error:
            return str(error)

    with ThreadPoolExecutor(2) as pool:
        done = [*pool.map(tag, made)]
    assert sorted(isinstance(each, str) for each in done) == [False, True]
    (task,) = list_tasks(bench.group, "shop")
    assert [entry.name for entry in task.versions] == ["v1"]


def test_a_task_that_is_there_is_not_begun_again(bench, somebody):
    folder = bench.begin()
    bench.commit(folder, {"a.txt": "a"})
    with pytest.raises(ConflictError, match=r"the task shop/ipv exists already .* by Ada, .*check"):
        init_task(bench.group, IPV, bench.root / "again")
    assert not (bench.root / "again").exists()
    somebody("Bea")
    init_task(bench.group, TaskRef("shop", "otto"), bench.root / "otto")
    with pytest.raises(ConflictError, match="is not empty"):
        init_task(bench.group, TaskRef("shop", "third"), folder)
    assert not [path for path in bench.root.iterdir() if path.name.startswith(".")]


def test_a_task_that_nobody_went_on_with_is_found_and_not_made_again(bench):
    made = init_task(bench.group, IPV, bench.root / "one")
    found = init_task(bench.group, IPV, bench.root / "two")
    assert (made.is_found, found.is_found) == (False, True)
    assert made.commit == found.commit


def test_a_version_is_made_once_of_what_is_committed(bench):
    folder = bench.begin()
    (folder / "new.txt").write_text("new")
    with pytest.raises(GitError, match="changes that are not committed"):
        tag_version(folder, "v1")
    commit_folder(folder)
    tag_version(folder, "v1", "The first")
    with pytest.raises(ConflictError, match="the version shop/ipv@v1 exists already"):
        tag_version(folder, "v1")
    with pytest.raises(RefNotFoundError, match="names no version"):
        tag_version(folder, "-v")
    assert bench.git("for-each-ref", "--format=%(objecttype) %(contents)", "refs/tags/ipv/v1") == (
        "tag The first"
    )
    text = (folder / "task.yaml").read_text().replace("spec:\n", "spec:\n  version: '1'\n")
    bench.commit(folder, {"task.yaml": text})
    with pytest.raises(SpecFileError, match=r"spec.version is '1', the tag says 'v2'"):
        tag_version(folder, "v2")


def test_a_version_that_was_moved_is_noticed(bench):
    folder = bench.begin()
    ref = bench.version(folder, "v1")
    list_tasks(bench.group, "shop")
    bench.commit(folder, {"a.txt": "a"})
    bench.git("tag", "-f", "-a", "-m", "moved", "ipv/v1", "ipv")
    with pytest.raises(ConflictError, match=r"shop/ipv@v1 was moved: its tag was \w{12}"):
        log_task(bench.group, ref)
    with pytest.raises(ConflictError, match=r"shop/ipv@v1 was moved: its tag is \w{12} here"):
        tag_version(folder, "v1")
    assert tag_version(folder, "v2").ref.version == "v2"


@pytest.mark.parametrize("has_hook", [True, False])
def test_nobody_moves_or_deletes_a_version_with_plain_git(bench, has_hook):
    folder = bench.begin()
    bench.version(folder, "v1")
    if not has_hook:  # as in older repositories
        (bench.bare / "hooks/update").unlink()
    bench.version(folder, "v2", {"a.txt": "a"})
    before = bench.git("for-each-ref", "refs/tags")
    bench.git("tag", "-f", "-a", "-m", "moved", "ipv/v1", "HEAD", folder=folder)
    for refspec in (":refs/tags/ipv/v1", "+refs/tags/ipv/v1"):
        with pytest.raises(subprocess.CalledProcessError) as error:
            bench.git("push", "origin", refspec, folder=folder)
        assert b"is a version, which cannot be moved or deleted" in error.value.stderr
    assert bench.git("for-each-ref", "refs/tags") == before
    bench.git("tag", "-a", "-m", "by hand", "ipv/v3", "HEAD", folder=folder)
    bench.git("push", "origin", "refs/tags/ipv/v3", folder=folder)


def test_the_name_of_a_version_that_was_deleted_is_used_up(bench, monkeypatch):
    monkeypatch.setenv("WALLE_CACHE", str(bench.cache))
    folder = bench.begin()
    for version in ("v1", "v2", "v3"):
        bench.version(folder, version)
    other = bench.author("bob")
    bench.git("tag", "-d", "ipv/v1", folder=other)  # the copy in the cache knows it all the same
    bench.git("update-ref", "-d", "refs/tags/ipv/v1")
    bench.commit(folder, {"a.txt": "a"})
    bench.git("tag", "-f", "-a", "-m", "moved", "ipv/v2", "ipv")
    for author in (folder, other):
        with pytest.raises(ConflictError, match=r"was deleted in .*, and names are not used again"):
            tag_version(author, "v1")
    [task] = list_tasks(bench.group, "shop")
    with pytest.raises(RefNotFoundError, match=r"the version shop/ipv@v1 was deleted in "):
        log_task(bench.group, TaskRef("shop", "ipv", "v1"))
    found = {each.name: each.problem for each in task.versions}
    assert found == {"v1": "deleted", "v2": "moved", "v3": ""}


def test_a_task_with_a_version_is_not_begun_again(bench):
    folder = bench.begin()
    bench.git("tag", "-a", "-m", "the template as it is", "ipv/v1", "ipv")
    with pytest.raises(ConflictError, match="the task shop/ipv exists already"):
        init_task(bench.group, IPV, bench.root / "other")
    assert folder.is_dir()


def test_a_subject_of_any_characters_is_one_version_of_the_list(bench):
    folder = bench.begin()
    bench.git("tag", "-a", "-m", "a\u2028b\x1fc\x0bd", "ipv/v1", "ipv")
    bench.version(folder, "v2")
    [task] = list_tasks(bench.group, "shop")
    assert [each.name for each in task.versions] == ["v2", "v1"]
    assert task.versions[1].subject == "a\u2028b\x1fc\x0bd"


def test_what_stood_in_the_way_of_a_version_upstream_is_not_kept(bench):
    folder = bench.begin()
    for name in ("tags/ipv/v1/x", "tags/cart", "heads/cart/x"):  # as on a host without a hook
        bench.git("update-ref", f"refs/{name}", "ipv")
    bench.version(folder, "v2")
    [task] = list_tasks(bench.group, "shop")
    assert [each.name for each in task.versions] == ["v2"]
    assert seen_version(bench.group, TaskRef("shop", "ipv", "v1")) == ""
    for name in ("tags/ipv/v1/x", "tags/cart", "heads/cart/x"):
        bench.git("update-ref", "-d", f"refs/{name}")
    bench.version(folder, "v1", {"a.txt": "a"})
    [task] = list_tasks(bench.group, "shop")
    assert sorted(each.name for each in task.versions) == ["v1", "v2"]
    assert init_task(bench.group, TaskRef("shop", "cart"), bench.root / "cart").commit


def test_a_task_whose_branch_was_deleted_is_not_begun_again(bench):
    bench.version(bench.begin(), "v1")
    bench.git("update-ref", "-d", "refs/heads/ipv")
    with pytest.raises(ConflictError, match="has versions, but its branch was deleted"):
        init_task(bench.group, IPV, bench.root / "other")


@pytest.mark.parametrize("name", [b"ipv/v\xe2\x80\xa8x", b"ipv/v\xff", b"\xc2\x85"])
def test_references_that_can_be_no_version_are_in_nobodys_way(bench, name):
    folder = bench.begin()
    bench.git("update-ref", "--stdin", given=b"create refs/tags/%s ipv\n" % name)
    bench.git("update-ref", "--stdin", given=b"create refs/heads/x/%s ipv\n" % name)
    bench.version(folder, "v1", {"a.txt": "a"})
    [task] = list_tasks(bench.group, "shop")
    assert [each.name for each in task.versions] == ["v1"]
    assert checkout_task(bench.group, IPV, bench.root / "bob").commit


def test_a_version_can_be_looked_at_and_a_folder_brought_on(bench):
    folder = bench.begin()
    ref = bench.version(folder, "v1", {"a.txt": "one"})
    bench.version(folder, "v2", {"a.txt": "two", "dir/b.txt": "b"})
    seen = checkout_task(bench.group, ref, bench.root / "seen").folder
    assert (seen / "a.txt").read_text() == "one"
    with pytest.raises(GitError, match="is at a version, which does not change"):
        commit_folder(seen)
    checkout_task(bench.group, IPV, seen)
    assert (seen / "dir/b.txt").exists()
    checkout_task(bench.group, ref, seen)
    assert not (seen / "dir").exists()
    (seen / "a.txt").write_text("mine")
    with pytest.raises(ConflictError, match="changes that are not committed"):
        checkout_task(bench.group, IPV, seen)
    with pytest.raises(RefNotFoundError, match=r"no version shop/ipv@v3, did you mean 'v[12]'"):
        checkout_task(bench.group, TaskRef("shop", "ipv", "v3"), bench.root / "x")
    assert not (bench.root / "x").exists()


def test_a_change_within_the_second_of_a_commit_is_committed(bench):
    folder, moment = bench.begin(), (1_700_000_000, 1_700_000_000)
    # file, commit and change are of one moment: git tells by the time of its index alone that
    # it has to look into the file
    subprocess.run(["git", "config", "core.trustctime", "false"], cwd=folder, check=True)
    (folder / "a.txt").write_text("one")
    os.utime(folder / "a.txt", moment)
    bench.version(folder, "v1", {"b.txt": "b"})
    os.utime(folder / ".git/index", moment)
    (folder / "a.txt").write_text("two")
    os.utime(folder / "a.txt", moment)
    ref = bench.version(folder, "v2", {"c.txt": "c"})
    seen = checkout_task(bench.group, ref, bench.root / "seen").folder
    assert (seen / "a.txt").read_text() == "two"


def test_a_difference_says_who_gets_another_file(bench):
    folder = bench.begin()
    files = "apiVersion: walle/v1\nkind: TaskFiles\nspec:\n  exclusive:\n"
    one = files + "  - {name: p, files: 'users/*.bin', by: user}\n"
    old = bench.version(
        folder, "v1", {"files.yaml": one, "users/ada.bin": "1", "users/bob.bin": "1"}
    )
    (folder / "users/bob.bin").unlink()
    two = one + "  - {name: q, files: 'devices/*'}\n"
    new = bench.version(folder, "v2", {"files.yaml": two, "users/ada.bin": "2", "devices/d-1": "d"})
    found = diff_versions(bench.group, old, new)
    assert [(each.kind, each.path) for each in found.files] == [
        *(("added", "devices/d-1"), ("changed", "files.yaml")),
        *(("changed", "users/ada.bin"), ("removed", "users/bob.bin")),
    ]
    assert [(each.kind, each.audience, each.resource) for each in found.audiences] == [
        *(("added", "d-1", "q"), ("changed", "user:ada", "p"), ("removed", "user:bob", "p"))
    ]
    assert "+2" in found.patch


def test_within_a_tasks_folder_log_and_diff_need_no_arguments(walle, bench, tmp_path, monkeypatch):
    monkeypatch.setenv("WALLE_GROUP", bench.group.address)
    walle("task", "init", "shop/ipv", cwd=tmp_path)
    folder = tmp_path / "ipv"
    monkeypatch.delenv("WALLE_GROUP")  # the folder knows its group
    said = json.loads(walle("task", "log", "--json", cwd=folder).stdout)
    assert (said["ref"], len(said["commits"])) == ("shop/ipv", 1)
    assert not walle("task", "diff", cwd=folder).stdout
    (folder / "words.txt").write_text("a b\n")
    (folder / "sub").mkdir()
    (folder / "script.py").write_text((folder / "script.py").read_text() + "# more\n")
    found = json.loads(walle("task", "diff", "--json", cwd=folder / "sub").stdout)
    assert [(each["kind"], each["path"]) for each in found["files"]] == [
        ("changed", "script.py"),
        ("added", "words.txt"),
    ]
    assert "+# more" in found["patch"]
    walle("task", "commit", "-m", "More", cwd=folder)
    assert not walle("task", "diff", cwd=folder).stdout
    for arguments, where in (
        (["diff", "shop/ipv"], folder),
        (["diff"], tmp_path),
        (["log"], tmp_path),
    ):
        refused = walle("task", *arguments, cwd=where, check=False)
        assert (refused.returncode, len(refused.stderr.splitlines())) == (16, 1)


def test_nobody_is_asked_for_a_name_and_a_group_that_is_not_there_is_one_line(bench, tmp_path):
    with pytest.raises(
        RefNotFoundError, match=r"no scenario 'shop' in .*there is none at all|no group"
    ):
        list_tasks(bench.group, "shop")
    (tmp_path / "gitconfig").write_text("[user]\n useConfigOnly = true\n")
    with pytest.raises(GitError, match="git does not know who you are"):
        bench.begin()
    assert not (bench.root / "ada").exists()
