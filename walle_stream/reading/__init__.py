"""What all sources share: a connector brings only how bytes arrive and become rows.

Comes in: bytes of a file, a pipe or a topic, as a connector has them; the partitions' committed
offsets; a limit. Goes out: ``SourceBatch``, made by ``Lane.cut`` and nowhere else, and ``Unread``.

A reader is a ``LaneReader``: it has a lane for each partition, which collects what was read for
it, hands the lanes out as batches, counts the limit, tells each partition of the end once, keeps
what stands before a failure, and says what is left to read. A connector subclasses it: it reads
on in ``_go_on``, and says in ``_position`` where a partition stands. A source is a ``LaneSource``.
``mapping`` is the language by which a definition says how rows of anybody become events.

Never here: a thread, a clock, a broker, a store; a name of a connector; state that an offset does
not give back.
"""

from walle_stream.reading.dead_letters import record_dead_letter
from walle_stream.reading.lane import Lane
from walle_stream.reading.offsets import Position
from walle_stream.reading.reader import LaneReader
from walle_stream.reading.source import LaneSource, Opening

__all__ = ["Lane", "LaneReader", "LaneSource", "Opening", "Position", "record_dead_letter"]
