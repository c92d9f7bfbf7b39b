"""Groups that are no folder, and authors with settings of their own."""

import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from walle_deploy.model.names import TaskRef
from walle_deploy.tasks.building import build_version
from walle_deploy.tasks.cloning import checkout_task, init_task
from walle_deploy.tasks.committing import commit_folder
from walle_deploy.tasks.groups import Group
from walle_deploy.tasks.history import list_tasks, log_task
from walle_deploy.tasks.tagging import tag_version
from walle_stream.errors import ConflictError, GitError, RefNotFoundError

pytestmark = pytest.mark.integration

IPV = TaskRef("shop", "ipv")


class _Backend(BaseHTTPRequestHandler):
    """Git's own HTTP server, as CGI."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        path, _, query = self.path.partition("?")
        length = int(self.headers.get("Content-Length") or 0)
        environ = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": self.server.root,
            "GIT_HTTP_EXPORT_ALL": "1",
            "REMOTE_USER": "ada",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type") or "",
            "CONTENT_LENGTH": str(length),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding") or "",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol") or "",
        }
        command = ["git", "http-backend"]
        given = self.rfile.read(length)
        done = subprocess.run(command, input=given, capture_output=True, env=environ, check=False)
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - a name of the base class


@pytest.fixture
def http_group(bench):
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Backend)
    server.root = bench.group.address
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield Group.parse(f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_task_on_a_host_is_worked_on_like_one_in_a_folder(bench, http_group):
    here = build_version(bench.group, bench.version(bench.begin(), "v1"))
    folder = checkout_task(http_group, IPV, bench.root / "far").folder
    assert bench.commit(folder, {"far.txt": "far"}, message="From afar").files == ("far.txt",)
    tag_version(folder, "v2")
    with pytest.raises(ConflictError, match="others committed meanwhile"):
        bench.commit(bench.root / "ada", {"near.txt": "near"})
    (task,) = list_tasks(http_group, "shop")
    assert sorted(each.name for each in task.versions) == ["v1", "v2"]
    far = build_version(http_group, TaskRef("shop", "ipv", "v1"))
    assert (far.package, far.files) == (here.package, here.files)


def test_a_host_without_the_repository_says_who_makes_it(bench, http_group):
    bench.begin()
    with pytest.raises(RefNotFoundError, match=r"no scenario 'otto' in http.*make an empty repository"):
        init_task(http_group, TaskRef("otto", "intent"), bench.root / "otto")
    started = init_task(http_group, TaskRef("shop", "intent"), bench.root / "intent")
    assert log_task(bench.group, started.ref)[0].commit == started.commit
    with pytest.raises(GitError, match="git ls-remote: fatal: "):
        list_tasks(Group.parse("http://127.0.0.1:1"), "shop")


def test_settings_of_the_author_change_nothing_that_is_made(bench, tmp_path):
    plain = bench.begin()
    (tmp_path / "hooks").mkdir()
    for name in ("pre-commit", "pre-push", "post-checkout", "reference-transaction"):
        hook = tmp_path / "hooks" / name
        hook.write_text("#!/bin/sh\ntouch hook-ran\nexit 1\n")
        hook.chmod(0o755)
    settings = tmp_path / "gitconfig"
    ignored = tmp_path / "ignored"
    ignored.write_text("*.txt\n")
    settings.write_text(
        settings.read_text()
        + f"[core]\n hooksPath = {tmp_path}/hooks\n autocrlf = true\n excludesFile = {ignored}\n"
        "[commit]\n gpgSign = true\n[tag]\n gpgSign = true\n[push]\n followTags = true\n"
        '[color]\n ui = always\n[log]\n showSignature = true\n[filter "x"]\n clean = false\n'
        f"[init]\n templateDir = {tmp_path}\n[fetch]\n prune = true\n[diff]\n external = false\n"
    )
    # the group's own hooks are the group's: they are run
    far = TaskRef("otto", "ipv")
    folder = init_task(bench.group, far, bench.root / "otto").folder
    assert bench.git("rev-parse", "HEAD^{tree}", folder=folder) == bench.git(
        "rev-parse", "HEAD^{tree}", folder=plain
    )
    files = {"a.txt": b"a\r\nb\n", ".gitattributes": b"b.txt filter=x\n", "b.txt": b"b\n"}
    assert bench.commit(folder, files).files == (".gitattributes", "a.txt", "b.txt")
    assert tag_version(folder, "v1").commit
    assert not [*bench.root.rglob("hook-ran")]


def test_what_is_no_plain_file_is_refused_before_the_commit(bench):
    folder = bench.begin()
    before = bench.git("rev-parse", "ipv")
    (folder / "link").symlink_to("/etc/passwd")
    with pytest.raises(GitError, match=r"^\S*ada: 'link' is a symbolic link"):
        commit_folder(folder)
    (folder / "link").unlink()
    bench.git("init", "-q", "inner", folder=folder)
    (folder / "inner/a").write_text("a")
    bench.git("add", ".", folder=folder / "inner")
    bench.git("commit", "-qm", "inner", folder=folder / "inner")
    with pytest.raises(GitError, match="'inner' is a submodule"):
        commit_folder(folder)
    assert bench.git("rev-parse", "ipv") == before


def test_a_hook_of_the_group_that_refuses_is_heard(bench):
    folder = bench.begin()
    hook = bench.bare / "hooks/update"
    hook.write_text("#!/bin/sh\necho 'ask the owner of shop' >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(GitError, match=r"git push: .*ask the owner of shop"):
        bench.commit(folder, {"a.txt": "a"})
    hook.unlink()
    assert commit_folder(folder).files == ("a.txt",)


def test_a_repository_that_git_does_not_find_where_it_is_is_said_so(bench):
    folder = bench.begin()
    said = r"finds no repository at .*group/shop\.git: it is damaged .*, or an insteadOf"
    plain = (bench.root / "gitconfig").read_text()
    (bench.root / "gitconfig").write_text(f'{plain}[url "/nowhere/"]\n insteadOf = {bench.root}/\n')
    with pytest.raises(GitError, match=said):
        bench.commit(folder, {"a.txt": "a"})
    (bench.root / "gitconfig").write_text(plain)
    (bench.bare / "HEAD").unlink()
    with pytest.raises(GitError, match=said):
        bench.commit(folder, {"a.txt": "a"})
