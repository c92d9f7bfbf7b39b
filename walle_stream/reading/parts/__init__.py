"""A source that ``walle partition`` cut by partition: each host reads its own parts alone.

Comes in: a folder with a manifest and a file for each partition, of *frames*: what the source gave
the partition, as events, counts and dead letters, so that nothing need be decided twice. Goes
out: the same ``SourceBatch`` contents as the source in one piece gives, by partition.

``layout`` has the bytes; ``source`` the source and its identity, and how a connector finds it;
``reader`` reads, ``app.cutting`` writes.
"""

from walle_stream.reading.parts.source import PartedSource, parted

__all__ = ["PartedSource", "parted"]
