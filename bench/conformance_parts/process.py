"""A peer's process, which may die or hang with any case: that costs this case alone."""

import os
import select
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from conformance_parts.exchange import Answer, Question, read, write

_BENCH: Final = Path(__file__).resolve().parents[1]
_ONE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)
_TOO_LONG: Final = "it takes longer than"


class PeerProcess:
    """Starts the peer's process when it is asked, and again after it has died."""

    def __init__(self, python: Path, name: str, folder: Path, limit_s: float) -> None:
        """Start nothing yet.

        Args:
            python: Of the peer.
            name: Of the module beside this one that runs cases, ``peer_NAME``.
            folder: For what crosses; of this process alone.
            limit_s: Of one case.
        """
        self._asked, self._answered = folder / "question", folder / "answer"
        self._said = folder / "said"
        self._command = [str(python), "-W", "ignore", "-m", "conformance_parts.child", name]
        self._command += [str(self._asked), str(self._answered)]
        self._limit_s = limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self.deaths = 0
        """How often it died, or was ended for its time."""
        self.cases = 0
        """That the process at hand was asked."""

    def __enter__(self) -> Self:
        """Be ended at the end."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        """End it."""
        self.end()

    def ask(self, question: Question) -> Answer:
        """Let it run a case; blocks.

        A case that ends a process which ran others before is tried once more in a fresh
        one: it may not have been its own fault.
        """
        was_used = self.cases > 0
        answer = self._ask(question)
        died = self._process is None and not answer.reason.startswith(_TOO_LONG)
        return self._ask(question) if died and was_used else answer

    def _ask(self, question: Question) -> Answer:
        write(self._asked, question)
        process = self._process or self._start()
        self._process, self.cases = process, self.cases + 1
        try:
            process.stdin.write(b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return Answer([], self._buried())
        if not select.select([process.stdout], [], [], self._limit_s)[0]:
            self.end()
            self.deaths += 1
            return Answer([], f"{_TOO_LONG} {self._limit_s:g} s")
        if not os.read(process.stdout.fileno(), 1):
            return Answer([], self._buried())
        return read(self._answered, Answer)

    def end(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process, self.cases = None, 0

    def _start(self) -> subprocess.Popen[bytes]:
        given = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        with self._said.open("wb") as said:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                env={**given, **_ONE_THREAD, "PYTHONPATH": str(_BENCH), "PYTHONHASHSEED": "0"},
            )

    def _buried(self) -> str:
        """Say why the process ended, and forget it."""
        code = self._process.wait()
        self.end()
        self.deaths += 1
        lines = self._said.read_text("utf-8", "replace").strip().splitlines() or ["no message"]
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"its process ends with {how}: {lines[-1][:200]}"
