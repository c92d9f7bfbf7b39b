"""The shop as a source, and its identity."""

from collections.abc import Mapping
from typing import override

from walle_connectors.simulator.model import SimulatorModel
from walle_connectors.simulator.pace import Pace
from walle_connectors.simulator.reader import SimulatorReader
from walle_connectors.simulator.timeline import Timeline
from walle_stream.reading import LaneSource, Opening
from walle_stream.reading.dead_letters import text_digest


class SimulatorSource(LaneSource):
    """Events of a simulated shop."""

    name = "the simulated shop"

    def __init__(self, model: SimulatorModel) -> None:
        """Keep the definition."""
        self._model = model

    @override
    @property
    def fingerprint(self) -> Mapping[str, str | int]:
        """What the events follow from."""
        text = self._model.model_dump_json(exclude={"connector", "sessions", "rate"})
        return {"simulator": text_digest(text.encode())}

    @override
    def difference(self, stored: Mapping[str, str | int]) -> str:
        """Say how it differs; one that goes on for more sessions is the same."""
        return super().difference(stored) and "keys of spec.source differ (sessions may grow)"

    @override
    def _reader(self, opening: Opening) -> SimulatorReader:
        pace = None if self._model.rate is None else Pace(self._model.rate)
        return SimulatorReader(Timeline(self._model), opening, pace)
