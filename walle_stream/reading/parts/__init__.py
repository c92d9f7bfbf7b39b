"""A source that ``walle partition`` cut by partition, so that each host reads only its own parts.

The input is a folder with a manifest and a file of *frames* for each partition. A frame has the
events, counts and dead letters of the partition, so that nothing is decided twice. The output is
the same ``SourceBatch`` contents, by partition, as from the source in one piece.

``layout`` has the bytes, and ``source`` has the source, its identity and the way to find it.
``reader`` reads parts, and ``app.cutting`` writes them.
"""

from walle_stream.reading.parts.source import PartedSource, parted

__all__ = ["PartedSource", "parted"]
