"""Emitted features: numbered, as rows of the device and in frames."""

from walle_stream.actors.parts.part import Opening, Part
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.actors.turns.turn import Turn
from walle_stream.wire.frame import FeatureRecord, encode_body, split_records


class Features(Part):
    """Features of a partition."""

    _opening: Opening

    def restart(self, opening: Opening) -> None:
        """Continue the numbers from the last commit."""
        self._opening = opening

    def contribute(self, turn: Turn, rows: PartitionRows) -> None:
        """Number the emitted features, write them, and make frames of them."""
        opening = self._opening
        versions = opening.sets.versions
        turn.records = [
            FeatureRecord(
                run.device_id,
                run.task,
                versions[run.program],
                number,
                feature,
                encoding,
                run.clock_ms,
                turn.origins.trace_of(run) if turn.origins.has_traces else "",
            )
            for run, number, (feature, encoding) in opening.machine.complete(turn.done.emitted)
        ]
        parts = split_records(turn.records)
        turn.bodies += [encode_body(part, opening.plan.compression) for part in parts]
        rows.put_features(turn.records)
