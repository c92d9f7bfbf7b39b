"""A trial of a task: its definition, its sample, its own tests. A trial runs the task's code.

``walle task test`` uses this module, before a commit and a tag.
"""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from walle_deploy.tasks.definitions import PIPELINE_FILE, TASK_FILE
from walle_stream.app.assembly import Assembly
from walle_stream.app.local import WORN_OUT, LocalRun
from walle_stream.app.options import RunOptions
from walle_stream.app.queries.query import features_lines
from walle_stream.app.validation import validate_file

TIMEOUT_S: Final = 600


class Trial(msgspec.Struct, frozen=True):
    """Result of a trial; a wrong definition raises an error instead."""

    task: str
    features: int | None
    """Number of features from the sample; None without ``pipeline.yaml``."""
    tests: str
    """``passed``, ``failed``, or the reason why no tests ran."""
    output: str

    @property
    def is_good(self) -> bool:
        """Whether nothing failed."""
        return self.tests != "failed"


def try_task(folder: Path) -> Trial:
    """Check a folder's task, run it over its sample and run its tests; blocks.

    Raises:
        WalleError: A definition or script is wrong, or the sample cannot be run.
    """
    summary = validate_file(folder / TASK_FILE)
    features = None
    if (folder / PIPELINE_FILE).is_file():
        features = _run_sample(folder / PIPELINE_FILE)
    tests, output = _run_tests(folder)
    return Trial(summary["name"], features, tests, output)


def _run_sample(file: Path) -> int:
    with TemporaryDirectory(prefix="walle-task-test-") as data:
        while True:
            assembly = Assembly.load(file, [])
            options = RunOptions(Path(data), assembly.host_count, None)
            if LocalRun(assembly, options).run().stopped_by != WORN_OUT:
                return sum(1 for _ in features_lines(Path(data)))


def _run_tests(folder: Path) -> tuple[str, str]:
    if not any(folder.rglob("test_*.py")):
        return "none: there is no test_*.py", ""
    if find_spec("pytest") is None:
        return "none: pytest is not installed", ""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."]
    try:
        process = subprocess.run(  # noqa: S603 - the task's own tests, which the user asks for
            [*command, "."],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "failed", f"the tests did not end within {TIMEOUT_S} s"
    return ("failed" if process.returncode else "passed"), process.stdout
