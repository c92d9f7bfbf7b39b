"""Settings of a partition before its first turn, and its figures.

``partition_plan`` has the settings shared by the partitions of a run. ``partition_sets`` has the
tasks of each device. ``journal`` decides when a device must be written. ``latency`` measures the
time to commits. The package never runs a task and never commits.
"""
