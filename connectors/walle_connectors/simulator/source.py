"""The shop as a source, and its identity."""

from collections.abc import Mapping
from hashlib import blake2b

from walle_connectors.simulator.model import SimulatorModel
from walle_connectors.simulator.pace import Pace
from walle_connectors.simulator.reader import SimulatorReader
from walle_connectors.simulator.timeline import Timeline
from walle_stream.errors import SourceChangedError


class SimulatorSource:
    """Events of a simulated shop."""

    def __init__(self, model: SimulatorModel) -> None:
        """Keep the definition."""
        self._model = model

    @property
    def fingerprint(self) -> Mapping[str, str | int]:
        """What the events follow from."""
        text = self._model.model_dump_json(exclude={"connector", "sessions", "rate"})
        return {"simulator": blake2b(text.encode(), digest_size=16).hexdigest()}

    def check_fingerprint(self, stored: Mapping[str, str | int]) -> None:
        """Refuse another shop; one that goes on for more sessions is the same.

        Raises:
            SourceChangedError: Other events.
        """
        if stored != self.fingerprint:
            raise SourceChangedError(
                "the simulated shop is not the one that the data directory was made from: give the "
                "same keys under spec.source (sessions may grow), or a new --data-dir"
            )

    def open(
        self,
        offsets: Mapping[int, bytes],
        partition_count: int,
        batch_events: int,
        limit: int | None = None,
    ) -> SimulatorReader:
        """Open at the partitions' offsets; see ``ports.Source.open``.

        Raises:
            SourceError: An offset is not of this source.
        """
        pace = None if self._model.rate is None else Pace(self._model.rate)
        timeline = Timeline(self._model)
        return SimulatorReader(timeline, offsets, partition_count, batch_events, limit, pace)
