"""Runs a fleet's pipeline in this process."""

from pathlib import Path
from typing import Final

from fleet_parts.source import CONNECTOR, Script
from walle_stream.app.assembly import Assembly
from walle_stream.app.local import LocalRun
from walle_stream.app.options import RunOptions
from walle_stream.app.report import RunReport

DEFINITION: Final = Path(__file__).with_name("fleet.yaml")


class Fleet:
    """One run of a script over a data directory."""

    def __init__(self, data_dir: Path, script: Script, overrides: list[str]) -> None:
        """Load the pipeline.

        Args:
            data_dir: A new one, or one of a fleet.
            script: What the devices do.
            overrides: As for ``--set``.
        """
        CONNECTOR.script = script
        assembly = Assembly.load(DEFINITION, overrides)
        # an only host would read by itself, and the script waits for its commits
        self._run = LocalRun(assembly, RunOptions(data_dir, hosts=2))

    @property
    def active_devices(self) -> int:
        """Number of devices in memory; called by the script."""
        return sum(status.active_devices for status in self._run.status())

    @property
    def outbox_bytes(self) -> int:
        """Bytes that the cloud side has not acknowledged; called by the script."""
        return sum(status.outbox_bytes for status in self._run.status())

    def run(self) -> RunReport:
        """Run to the script's end; blocks."""
        CONNECTOR.stage.watch()
        return self._run.run()
