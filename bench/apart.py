"""A measurement in a process of its own: what ran before leaves nothing in it."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent


def measure_apart(script: Path, *arguments: str) -> dict[str, Any]:
    """Run a script of ours in a new process; blocks to its end.

    Args:
        script: It writes what it measured as JSON to the file that ``--out`` names.
        arguments: Its other arguments.

    Raises:
        subprocess.CalledProcessError: It failed, and said why on stderr.
    """
    with tempfile.TemporaryDirectory(prefix="walle-bench-") as folder:
        out = Path(folder) / "made.json"
        command = [sys.executable, str(script.resolve()), *arguments, "--out", str(out)]
        paths = (ROOT, ROOT / "connectors", ROOT / "deploy")
        environment = {
            **os.environ,
            "PYTHONHASHSEED": "0",
            # this checkout's own packages, whatever else is installed
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
        }
        subprocess.run(command, check=True, env=environment)
        return dict(json.loads(out.read_text()))
