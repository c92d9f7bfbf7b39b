"""The cloud side of a tunnel: it fences senders, merges and keeps features, and answers look-ups.

Input: records of devices, in one order. Output: rows of a feature table, written in one batch with
the state of each device and the position in that order; answers to look-ups; reports for a release
service. ``partition_table`` is the table of any single order, such as a partition of a topic.
``partitions`` has the tables of one worker's partitions. Without a broker the table is in the
devices' own partition database (``own_table``), reached through ``host_tables``. The package does
not know the broker.

The package never merges a feature twice, and never stores a position beyond the merged records.
"""
