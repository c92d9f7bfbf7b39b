"""Runs the git command: arguments as a list, a clean environment, a time limit, no prompt.

What the user configured decides who they are and how hosts are reached (credentials, proxies,
ssh); nothing else of it reaches what is made here: no hooks, filters, aliases, templates or
signatures of theirs. Place in the flow: everything in ``tasks`` that touches a repository.
"""

import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from walle_stream.errors import GitError

LOCAL_TIMEOUT_S: Final = 120
NETWORK_TIMEOUT_S: Final = 600
_KEPT: Final = frozenset(
    {
        *("GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_ASKPASS", "GIT_PROXY_COMMAND"),
        *("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE"),
        *("GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "GIT_COMMITTER_DATE", "GIT_EXEC_PATH"),
        *("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"),
    }
)
_ALWAYS: Final = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "file:ssh:https:http",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_EDITOR": "false",
    "LC_ALL": "C",
}
_OVERRIDES: Final = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.untrackedCache=false"),
    *("gc.auto=0", "maintenance.auto=false", "advice.detachedHead=false"),
    # what comes from elsewhere is looked at before it is kept
    *("transfer.fsckObjects=true", "fetch.recurseSubmodules=no", "push.recurseSubmodules=no"),
)
_INDEX: Final = "walle-index"
_LINE_MAX: Final = 300
_SAYS_NOTHING: Final = (
    *("hint:", "To ", "fatal: Could not read from remote repository"),
    *("Please make sure you have the correct access rights", "and the repository exists"),
)


class Git:
    """The git command on one repository."""

    def __init__(
        self,
        folder: Path,
        *,
        work_tree: Path | None = None,
        environ: Mapping[str, str] | None = None,
        locks: Sequence[int] = (),
        is_near: bool = False,
    ) -> None:
        """Point it at a repository, which need not be there yet.

        The folder is the repository's own: ``shop.git``, or a clone's ``.git``, whose files are in
        ``work_tree``. The descriptors ``locks`` stay open as long as a command runs. What reaches a
        group that ``is_near``, of this machine, keeps them, too; a host's helpers may go on for
        long, such as one that keeps passwords.
        """
        self.folder = folder
        self.work_tree = work_tree
        self.environ = dict(environ or {})
        self.locks = tuple(locks)
        self._is_near = is_near

    def run(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        is_network: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> bytes:
        """Run a command and return what it prints; blocks.

        Names of others stand behind ``--`` or ``refs/``. ``is_network``: it reaches the group, so
        the user's configuration counts, and it has more time.

        Raises:
            GitError: It failed, took too long, or there is no git.
        """
        process = self.attempt(*arguments, stdin=stdin, is_network=is_network, environ=environ)
        if process.returncode:
            failed: GitError = git_error(arguments, process.stderr, process.returncode)
            raise failed
        return process.stdout

    def line(self, *arguments: str) -> str:
        """Run a command that prints one line, and return it.

        Raises:
            GitError: It failed.
        """
        return self.run(*arguments).decode(errors="replace").strip()

    def try_line(self, *arguments: str) -> str:
        """Run a command that may fail, and return the line that it prints; empty for none."""
        return self.attempt(*arguments).stdout.decode(errors="replace").strip()

    def fetch(self, url: str, refspecs: Iterable[str], *, is_network: bool = True) -> None:
        """Bring what refspecs name of another repository here, and nothing else; blocks."""
        self.run(
            *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"),
            *("--stdin", "--", url),
            stdin="".join(f"{refspec}\n" for refspec in refspecs).encode(),
            is_network=is_network,
        )

    @contextmanager
    def own_index(self) -> Iterator[dict[str, str]]:
        """Give the environment of commands on an index beside the user's, which goes at the end."""
        index = self.folder / _INDEX
        index.unlink(missing_ok=True)
        index.with_name(f"{_INDEX}.lock").unlink(missing_ok=True)
        try:
            yield {"GIT_INDEX_FILE": str(index)}
        finally:
            index.unlink(missing_ok=True)

    def attempt(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        is_network: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command that may fail, return what it printed, and its exit code; blocks.

        Raises:
            GitError: It took too long, or there is no git.
        """
        limit = NETWORK_TIMEOUT_S if is_network else LOCAL_TIMEOUT_S
        try:
            return subprocess.run(  # noqa: S603 - git, and no shell
                self.command(*arguments),
                input=stdin or b"",
                capture_output=True,
                env={**self.variables(is_network=is_network), **(environ or {})},
                # paths are of the whole tree, wherever the user stands in it
                cwd=self.work_tree or self.folder,
                timeout=limit,
                check=False,
                pass_fds=self.locks if self._is_near or not is_network else (),
            )
        except subprocess.TimeoutExpired as error:
            raise GitError(
                f"git {arguments[0]} did not end within {limit} s: look whether the group answers"
            ) from error
        except OSError as error:
            if not (self.work_tree or self.folder).is_dir():
                raise GitError(f"{self.work_tree or self.folder} is no folder") from error
            missing: GitError = no_git(error)
            raise missing from error

    def command(self, *arguments: str) -> list[str]:
        """Return the command line."""
        overrides = [part for setting in _OVERRIDES for part in ("-c", setting)]
        tree = [] if self.work_tree is None else [f"--work-tree={self.work_tree}"]
        start = ["git", "--no-pager", f"--git-dir={self.folder}", *tree]
        return [*start, "--literal-pathspecs", *overrides, *arguments]

    def variables(self, *, is_network: bool) -> dict[str, str]:
        """Return a command's environment; one ``is_network`` reads the user's configuration."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("GIT_") or name in _KEPT
        }
        variables = {**kept, **_ALWAYS, **self.environ}
        if not is_network:
            variables |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
        return variables

    def identity(self) -> dict[str, str]:
        """Return the environment that names who commits, from their own configuration.

        Raises:
            GitError: git does not know who they are.
        """
        process = self.attempt("var", "GIT_COMMITTER_IDENT", is_network=True)
        name, _, rest = process.stdout.decode(errors="replace").partition(" <")
        email, closing, _ = rest.partition(">")
        if process.returncode or not name.strip() or not closing:
            raise GitError(
                "git does not know who you are: git config --global user.name 'Your Name', and "
                "user.email"
            )
        variables = {}
        for role in ("AUTHOR", "COMMITTER"):
            variables[f"GIT_{role}_NAME"] = os.environ.get(f"GIT_{role}_NAME", name)
            variables[f"GIT_{role}_EMAIL"] = os.environ.get(f"GIT_{role}_EMAIL", email)
        return variables


def git_error(arguments: Sequence[str], stderr: bytes, code: int) -> GitError:
    """Make the error of a command that failed."""
    return GitError(f"git {arguments[0]}: {last_line(stderr) or f'ended with {code}'}")


def no_git(error: OSError) -> GitError:
    """Make the error of a machine without git."""
    return GitError(f"the git command cannot be run ({error.strerror}): install git 2.38 or newer")


def last_line(stderr: bytes) -> str:
    """Return what git said: its last line that says something, short."""
    lines = [line.strip() for line in stderr.decode(errors="replace").splitlines()]
    messages = [line for line in lines if line and not line.startswith(_SAYS_NOTHING)]
    # the reason stands before what git always ends with
    reasons = [line for line in messages if line.startswith(("fatal:", "error:", "remote:", "!"))]
    text = (reasons or messages or [""])[0 if reasons else -1]
    return "".join(
        character if character.isprintable() else "?" for character in text.expandtabs(1)
    )[:_LINE_MAX]
