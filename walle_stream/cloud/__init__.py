"""The cloud side of a tunnel: fences senders, merges features, keeps them, answers look-ups.

In: what devices sent, in one order. Out: rows of a feature table, with what was seen of each device
and the place in that order in the same write batch; answers to look-ups; reports, for a release
service. ``partition_table`` is the table of whatever has one order, such as a partition of a
topic; ``partitions`` has those that one worker was given. Without a broker the table is in the
database of the partition whose devices are here (``own_table``), and ``host_tables`` is the way to
it. Nothing here knows a broker.

The room never merges a feature twice, and holds no position of what is not merged.
"""
