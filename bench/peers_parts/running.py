"""One run of one contender: a process, what it cost, and what it made."""

import os
import shutil
import subprocess
import sys
import tempfile
from base64 import b64decode
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from peers_parts.contenders import Contender
from peers_parts.environments import Environment
from walle_stream.app.queries.query import features_records

ROOT: Final = Path(__file__).resolve().parents[2]

_encode = msgspec.json.Encoder(order="deterministic").encode


class Cost(NamedTuple):
    """What a process took, its start included."""

    cpu_s: float
    """Of all its threads and of the processes that it waited for."""
    wall_s: float
    peak_rss_mib: float
    """Of the largest process."""


class Made(NamedTuple):
    """What it made, in an order of its own."""

    features: int
    digest: str
    """Of all features with their encodings as a multiset."""


def run_contender(
    contender: Contender, environment: Environment, source: Path
) -> tuple[Cost, Made]:
    """Run it over a file; blocks.

    Args:
        contender: Which.
        environment: Where it is installed.
        source: JSON Lines of events.
    """
    folder = Path(tempfile.mkdtemp(prefix="walle-bench-"))
    try:
        if not contender.script:
            command = [str(environment.python), "-m", "walle_stream.cli", "run"]
            command += [str(ROOT / "configs/shop.yaml"), "--json", "--data-dir", f"{folder}/data"]
            command += ["--allow-empty"]  # a run over one event: the start alone
            command += ["--set", f"spec.source={{connector: events, path: {source}}}"]
            return measured(command), digest_of(_features_of(folder / "data"))
        out = folder / "features.jsonl"
        command = [str(environment.python), str(Path(__file__).parent / contender.script)]
        cost = measured([*command, str(source), str(out), *contender.arguments])
        with out.open("rb") as file:
            return cost, digest_of(map(canonical_line, file))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def digest_of(features: Iterable[bytes]) -> Made:
    """Digest features with their encodings as a multiset.

    Args:
        features: What ``canonical`` returns.
    """
    ordered = sorted(features)
    whole = blake2b(digest_size=16)
    for each in ordered:
        whole.update(len(each).to_bytes(4) + each)
    return Made(len(ordered), whole.hexdigest())


def canonical(feature: dict[str, Any], encoding: bytes) -> bytes:
    """Return one feature as bytes that are equal for equal ones."""
    return _encode([feature, encoding])


def surroundings_of_a_run() -> dict[str, str]:
    """Return the environment variables of a contender's process."""
    paths = (ROOT, ROOT / "connectors", ROOT / "deploy", ROOT / "bench")
    # a start that compiles anew each time is nobody's
    given = {name: os.environ[name] for name in os.environ if name != "PYTHONDONTWRITEBYTECODE"}
    return {
        **given,
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        # a peer's complaints about its own dependencies are none of ours
        "PYTHONWARNINGS": "ignore",
    }


def measured(command: list[str]) -> Cost:
    """Run a command to its end and return its cost; blocks.

    Args:
        command: The command line; any exit code but 0 ends the benchmark.
    """
    with tempfile.TemporaryDirectory(prefix="walle-bench-") as folder:
        out = Path(folder) / "cost.json"
        wrapper = [sys.executable, "-I", "-S", str(Path(__file__).with_name("measured.py"))]
        done = subprocess.run(
            [*wrapper, str(out), *command],
            capture_output=True,
            check=False,
            env=surroundings_of_a_run(),
        )
        if done.returncode:
            text = done.stderr.decode(errors="replace")[-4_000:]
            sys.exit(f"exit code {done.returncode} of {' '.join(command)}\n{text}")
        return Cost(**msgspec.json.decode(out.read_bytes()))


def _features_of(data_dir: Path) -> list[bytes]:
    return [
        canonical(msgspec.json.decode(record.feature), record.encoding)
        for record in features_records(data_dir)
    ]


def canonical_line(line: bytes) -> bytes:
    """Return the feature of an output line of a peer as ``canonical`` does."""
    made = msgspec.json.decode(line)
    return canonical(made["feature"], b64decode(made["encoding"]))
