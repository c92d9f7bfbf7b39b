"""Code that all sources share; a connector adds only its way from bytes to rows.

The input is a connector's bytes of a file, a pipe or a topic, the partitions' committed offsets,
and a limit. The output is ``SourceBatch``, made only by ``Lane.cut``, and ``Unread``.

A reader is a ``LaneReader``. It collects the rows of each partition in a lane, and returns lanes as
batches. It counts the limit, tells each partition of the end once, keeps rows that precede a
failure, and reports unread input. A connector subclasses it: ``_go_on`` reads more, and
``_position`` returns a partition's position. A source is a ``LaneSource``. ``mapping`` is the
language that maps foreign rows to events.

This package has no thread, clock, broker or store, no name of a connector, and no state that an
offset cannot restore.
"""

from walle_stream.reading.dead_letters import record_dead_letter
from walle_stream.reading.lane import Lane
from walle_stream.reading.offsets import Position
from walle_stream.reading.reader import LaneReader
from walle_stream.reading.source import LaneSource, Opening

__all__ = ["Lane", "LaneReader", "LaneSource", "Opening", "Position", "record_dead_letter"]
