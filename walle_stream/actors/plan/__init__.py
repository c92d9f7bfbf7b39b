"""What a partition is given before its first turn, and what it says of itself.

``partition_plan`` is what the partitions of a run share, ``partition_sets`` which tasks each
device has, ``journal`` when a device must be written, ``latency`` how long commits took.
The room never runs a task and never commits.
"""
