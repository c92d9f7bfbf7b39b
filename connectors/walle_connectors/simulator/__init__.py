"""A shop that does not exist: seeded events of its visitors, for tests and benchmarks.

The definition determines everything. A seed gives the same events on every machine, for any
number of partitions, and from any offset on. ``walle simulate`` writes them as JSON Lines for
other programs.
"""

from typing import Final

from walle_connectors.simulator.model import SimulatorModel
from walle_connectors.simulator.reader import SimulatorSource


class SimulatorConnector:
    """Entry point ``simulator``."""

    name: Final = "simulator"
    model: Final = SimulatorModel

    def open(self, model: SimulatorModel) -> SimulatorSource:
        """Make the source; nothing is computed yet."""
        return SimulatorSource(model)


CONNECTOR: Final = SimulatorConnector()
