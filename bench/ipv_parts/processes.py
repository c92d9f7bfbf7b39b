"""The processes of a round: the feeding ones, and ``walle cloud``."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

import msgspec

ROOT: Final = Path(__file__).resolve().parents[2]
_TICKS_S: Final = 1.0 / os.sysconf("SC_CLK_TCK")
_END_S: Final = 60.0
_LOOK_S: Final = 0.2
_BASELINE: Final = ROOT / "bench/cloud_baseline.py"


def environment() -> dict[str, str]:
    """Return that of a process which imports this checkout."""
    paths = (ROOT, ROOT / "connectors", ROOT / "deploy", ROOT / "bench")
    return {
        **os.environ,
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
    }


def run_part(module: str, asked: Any) -> dict[str, Any]:
    """Run a module of ``ipv_parts`` in a process of its own; blocks to its end.

    Args:
        module: Its name; it writes JSON to what ``asked.out`` names.
        asked: Its only argument, a struct.

    Raises:
        subprocess.CalledProcessError: It failed, and said why on stderr.
    """
    with tempfile.TemporaryDirectory(prefix="walle-bench-") as folder:
        out = Path(folder) / "made.json"
        given = msgspec.json.encode(msgspec.structs.replace(asked, out=str(out))).decode()
        command = [sys.executable, "-m", f"ipv_parts.{module}", given]
        subprocess.run(command, check=True, env=environment(), stdout=subprocess.DEVNULL)
        return dict(msgspec.json.decode(out.read_bytes()))


class Cloud:
    """``walle cloud``, or the baseline, in a process of its own; a context manager."""

    def __init__(
        self,
        definition: Path,
        overrides: Sequence[str],
        folder: Path,
        port: int,
        *,
        is_baseline: bool,
    ) -> None:
        """Start it and wait until it has its partitions.

        Args:
            definition: The pipeline.
            overrides: As for ``--set``.
            folder: A new one, for its tables and its log.
            port: For its pages.
            is_baseline: Whether it makes features, or merges those that come.
        """
        folder.mkdir(parents=True)
        sets = [part for each in overrides for part in ("--set", each)]
        program = [str(_BASELINE)] if is_baseline else ["-m", "walle_stream.cli", "cloud"]
        command = [sys.executable, *program, str(definition), *sets]
        command += ["--data-dir", str(folder / "d"), "--web-port", str(port)]
        self._port = port
        self._log = folder / "log"
        with ExitStack() as opened:
            log = opened.enter_context(self._log.open("wb"))
            self._process = subprocess.Popen(
                command, env=environment(), stdout=subprocess.PIPE, stderr=log
            )
        out = self._process.stdout
        if out is None or b"ready" not in out.readline():
            self._process.kill()
            sys.exit(f"{' '.join(command)} does not start: {self._log.read_text()[-4_000:]}")

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    @property
    def cpu_s(self) -> float:
        """Of all its threads so far."""
        stat = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii")
        user, system = stat.rpartition(") ")[2].split()[11:13]
        return (int(user) + int(system)) * _TICKS_S

    def wait_for(self, features: int) -> None:
        """Wait until it has merged that number.

        Raises:
            TimeoutError: They do not come.
        """
        deadline_s = time.monotonic() + _END_S
        url = f"http://127.0.0.1:{self._port}/healthz"
        while time.monotonic() < deadline_s:
            with urllib.request.urlopen(url, timeout=_END_S) as answer:
                counts = msgspec.json.decode(answer.read())["counts"]
            if counts["features"] >= features:
                return
            time.sleep(_LOOK_S)
        raise TimeoutError(f"walle cloud did not merge {features} features in {_END_S:g} s")
