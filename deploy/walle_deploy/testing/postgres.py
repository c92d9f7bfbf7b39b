"""A temporary PostgreSQL for tests, in a folder of its own with a socket."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final, Self

from walle_stream.errors import ServiceUnreachableError

_PROGRAMS: Final = "/usr/lib/postgresql"
_READY: Final = b"ready to accept connections"
_STOP_S: Final = 20.0
# the data is thrown away, so it need not survive a power cut
_FAST: Final = ("fsync=off", "full_page_writes=off")
_OWN: Final = ("listen_addresses=", "max_connections=20")


def find_postgres() -> Path | None:
    """Return the folder with ``postgres`` and ``initdb``, or None if they are missing."""
    found = shutil.which("initdb")
    if found and shutil.which("postgres"):
        return Path(found).resolve().parent
    folders = sorted(Path(_PROGRAMS).glob("*/bin/initdb"))
    return folders[-1].parent if folders else None


class TemporaryPostgres:
    """A server for the duration of the context."""

    def __init__(self, programs: Path, *, is_durable: bool = False) -> None:
        """Prepare; the server starts with the context.

        Args:
            programs: Folder with ``postgres`` and ``initdb``.
            is_durable: Whether it syncs its writes as in production, for benchmarks.
        """
        self._programs = programs
        self._settings = _OWN if is_durable else _FAST + _OWN
        self._folder = Path()
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Address of a database for ``open_store``."""
        return f"postgresql:///postgres?host={self._folder}&user=walle"

    def __enter__(self) -> Self:
        """Make the folder, start the server, and wait until it answers.

        Raises:
            ServiceUnreachableError: The server ended before it was ready.
        """
        # not in a test's folder, which other users may not enter: as root, another user runs it
        self._folder = Path(tempfile.mkdtemp(prefix="walle-pg-"))
        self._run("initdb", "-D", "data", "-U", "walle", "-A", "trust", "--locale=C", "-N")
        settings = [part for each in self._settings for part in ("-c", each)]
        command = [
            str(self._programs / "postgres"),
            "-D",
            "data",
            "-k",
            str(self._folder),
            *settings,
        ]
        self._server = subprocess.Popen(  # noqa: S603 - found by us
            command, cwd=self._folder, stderr=subprocess.PIPE, **_user(self._folder)
        )
        lines = self._server.stderr
        while lines is not None and (line := lines.readline()):
            if _READY in line:
                return self
        self.__exit__()
        raise ServiceUnreachableError("the PostgreSQL for tests ended before it was ready")

    def __exit__(self, *_error: object) -> None:
        """Stop the server, and remove the folder."""
        if self._server is not None:
            self._server.send_signal(signal.SIGINT)  # breaks connections, then ends
            try:
                self._server.communicate(timeout=_STOP_S)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.communicate()
            self._server = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        options = _user(self._folder)
        done = subprocess.run(  # noqa: S603 - found by us
            [str(self._programs / program), *arguments],
            cwd=self._folder,
            capture_output=True,
            check=False,
            **options,
        )
        if done.returncode:
            shutil.rmtree(self._folder, ignore_errors=True)
            text = done.stderr.decode(errors="replace").strip()
            raise ServiceUnreachableError(f"{program} failed: {text}")


def _user(folder: Path) -> dict[str, Any]:
    """Return the user for the server, because PostgreSQL refuses to run as root."""
    if os.geteuid():
        return {}
    names = {each.pw_name for each in pwd.getpwall()}
    entry = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    os.chown(folder, entry.pw_uid, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
