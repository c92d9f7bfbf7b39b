"""What breaks inside a machine: its network, its disk, its clock. None needs rights on this machine."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.cluster.engine import EngineError
from tests.cluster.nodes import HOME, SMALL_DISK, Nodes

_LIBRARY: Final = "skew.so"


@contextmanager
def cut(nodes: Nodes, name: str) -> Iterator[None]:
    """Lose every packet from and to a machine meanwhile; its processes go on."""
    with _rules(nodes, name, "-j DROP"):
        yield


@contextmanager
def losing(nodes: Nodes, name: str, share: float) -> Iterator[None]:
    """Lose some packets from and to a machine meanwhile.

    Args:
        nodes: Of the cluster.
        name: Of the machine.
        share: 0 to 1, of each direction.
    """
    with _rules(nodes, name, f"-m statistic --mode random --probability {share} -j DROP"):
        yield


@contextmanager
def _rules(nodes: Nodes, name: str, rule: str) -> Iterator[None]:
    lines = ("INPUT ! -i lo", "OUTPUT ! -o lo")
    nodes.run(name, "sh", "-ec", ";".join(f"iptables -A {each} {rule}" for each in lines))
    try:
        yield
    finally:
        # a machine that was killed meanwhile has no rules any more
        nodes.run(name, "sh", "-c", "iptables -F INPUT; iptables -F OUTPUT", check=False)


@contextmanager
def full_disk(nodes: Nodes, name: str) -> Iterator[None]:
    """Leave no room on a machine's ``SMALL_DISK`` meanwhile."""
    filler = f"{SMALL_DISK}/filler"
    nodes.run(name, "sh", "-c", f"cat /dev/zero >{filler}", check=False)
    try:
        yield
    finally:
        nodes.run(name, "rm", "-f", filler, check=False)


def put_version(nodes: Nodes, name: str, version: str) -> None:
    """Have another version of walle_stream on a machine, for processes that start from now on."""
    line = r"""sed -i 's/^__version__ = .*/__version__ = "'"$1"'"/' \
        "$(python -c 'import walle_stream; print(walle_stream.__file__)')" """
    nodes.run(name, "sh", "-ec", line, "sh", version)


def skew(nodes: Nodes, name: str, seconds: int) -> None:
    """Put the wall clock wrong for whatever ``ray up`` starts on a machine from now on.

    Args:
        nodes: Of the cluster.
        name: Of the machine.
        seconds: How far ahead; negative for behind, 0 for a right clock again.

    Raises:
        EngineError: There is no C compiler here.
    """
    variables = wrong_clock(nodes.folder, seconds) | {"LD_PRELOAD": f"{HOME}/{_LIBRARY}"}
    variables["RAY_LD_PRELOAD_ON_WORKERS"] = "1"  # else its daemon alone has the library
    lines = "\n".join(f"export {key}={value}" for key, value in variables.items())
    nodes.run(name, "sh", "-ec", f"echo '{lines}' >/etc/profile.d/skew.sh")


def wrong_clock(folder: Path, seconds: int) -> dict[str, str]:
    """Return variables of a process on this machine whose wall clock is to be wrong.

    Args:
        folder: For the library that does it.
        seconds: How far ahead; negative for behind.

    Raises:
        EngineError: There is no C compiler here.
    """
    compiler, made = shutil.which("cc"), folder / _LIBRARY
    if compiler is None:
        raise EngineError("a wrong clock is compiled with cc: install it")
    source = str(Path(__file__).with_name("skew.c"))
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(made), source], check=True)
    return {"LD_PRELOAD": str(made), "WALLE_SKEW_S": str(seconds)}
