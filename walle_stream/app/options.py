"""How a pipeline is run; what is run is in its definition."""

from pathlib import Path

import msgspec


class RunOptions(msgspec.Struct, frozen=True):
    """Options of one run."""

    data_dir: Path
    hosts: int
    """Device hosts that share the partitions, ≥ 1."""
    limit: int | None = None
    """Most rows to read in this run."""
