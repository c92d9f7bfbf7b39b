"""The git command: arguments as a list, a clean environment, a time limit, no prompt.

The user's configuration gives the identity and the access to hosts (credentials, proxies, ssh).
Nothing else in that configuration changes the results: no hooks, filters, aliases, templates or
signatures.
Everything in ``tasks`` that touches a repository uses this module.
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
    # objects from elsewhere are checked before they are stored
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
        """Set the repository, which need not exist yet.

        The folder is the repository's own: ``shop.git``, or a clone's ``.git``, whose files are in
        ``work_tree``. The descriptors ``locks`` stay open as long as a command runs. Commands that
        reach a group on this machine (``is_near``) keep them, too. Commands that reach a host do
        not, because helpers such as a password cache may live long.
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
        """Run a command and return its standard output; blocks.

        Names from other people must stand behind ``--`` or ``refs/``. A command with ``is_network``
        reaches the group: it uses the user's configuration and has a longer time limit.

        Raises:
            GitError: The command failed or timed out, or git is missing.
        """
        process = self.attempt(*arguments, stdin=stdin, is_network=is_network, environ=environ)
        if process.returncode:
            failed: GitError = git_error(arguments, process.stderr, process.returncode)
            raise failed
        return process.stdout

    def line(self, *arguments: str) -> str:
        """Run a command that prints one line, and return the line.

        Raises:
            GitError: The command failed.
        """
        return self.run(*arguments).decode(errors="replace").strip()

    def try_line(self, *arguments: str) -> str:
        """Run a command that may fail, and return its line of output; empty for none."""
        return self.attempt(*arguments).stdout.decode(errors="replace").strip()

    def fetch(self, url: str, refspecs: Iterable[str], *, is_network: bool = True) -> None:
        """Fetch the references that the refspecs name, and nothing else; blocks."""
        self.run(
            *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"),
            *("--stdin", "--", url),
            stdin="".join(f"{refspec}\n" for refspec in refspecs).encode(),
            is_network=is_network,
        )

    @contextmanager
    def own_index(self) -> Iterator[dict[str, str]]:
        """Give the environment of a separate index, which is deleted at the end."""
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
        """Run a command that may fail, and return its output and exit code; blocks.

        Raises:
            GitError: The command timed out, or git is missing.
        """
        limit = NETWORK_TIMEOUT_S if is_network else LOCAL_TIMEOUT_S
        try:
            return subprocess.run(  # noqa: S603 - git, and no shell
                self.command(*arguments),
                input=stdin or b"",
                capture_output=True,
                env={**self.variables(is_network=is_network), **(environ or {})},
                # paths are relative to the whole tree, not to the user's current folder
                cwd=self.work_tree or self.folder,
                timeout=limit,
                check=False,
                pass_fds=self.locks if self._is_near or not is_network else (),
            )
        except subprocess.TimeoutExpired as error:
            raise GitError(
                f"git {arguments[0]} did not end within {limit} s: check whether the group answers"
            ) from error
        except OSError as error:
            if not (self.work_tree or self.folder).is_dir():
                raise GitError(f"{self.work_tree or self.folder} is not a folder") from error
            missing: GitError = no_git(error)
            raise missing from error

    def command(self, *arguments: str) -> list[str]:
        """Return the command line."""
        overrides = [part for setting in _OVERRIDES for part in ("-c", setting)]
        tree = [] if self.work_tree is None else [f"--work-tree={self.work_tree}"]
        start = ["git", "--no-pager", f"--git-dir={self.folder}", *tree]
        return [*start, "--literal-pathspecs", *overrides, *arguments]

    def variables(self, *, is_network: bool) -> dict[str, str]:
        """Return a command's environment, for the network with the user's configuration."""
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
        """Return the environment that names the committer, from the user's configuration.

        Raises:
            GitError: git does not know the user's name and address.
        """
        process = self.attempt("var", "GIT_COMMITTER_IDENT", is_network=True)
        name, _, rest = process.stdout.decode(errors="replace").partition(" <")
        email, closing, _ = rest.partition(">")
        if process.returncode or not name.strip() or not closing:
            raise GitError(
                "git does not know who you are: run git config --global user.name 'Your Name', "
                "and the same for user.email"
            )
        variables = {}
        for role in ("AUTHOR", "COMMITTER"):
            variables[f"GIT_{role}_NAME"] = os.environ.get(f"GIT_{role}_NAME", name)
            variables[f"GIT_{role}_EMAIL"] = os.environ.get(f"GIT_{role}_EMAIL", email)
        return variables


def git_error(arguments: Sequence[str], stderr: bytes, code: int) -> GitError:
    """Return the error for a command that failed."""
    return GitError(f"git {arguments[0]}: {last_line(stderr) or f'ended with {code}'}")


def no_git(error: OSError) -> GitError:
    """Return the error for a machine without git."""
    return GitError(f"the git command cannot be run ({error.strerror}): install git 2.38 or newer")


def last_line(stderr: bytes) -> str:
    """Return the most useful line of git's error output, shortened."""
    lines = [line.strip() for line in stderr.decode(errors="replace").splitlines()]
    messages = [line for line in lines if line and not line.startswith(_SAYS_NOTHING)]
    # git prints the reason before its closing lines
    reasons = [line for line in messages if line.startswith(("fatal:", "error:", "remote:", "!"))]
    text = (reasons or messages or [""])[0 if reasons else -1]
    return "".join(
        character if character.isprintable() else "?" for character in text.expandtabs(1)
    )[:_LINE_MAX]
