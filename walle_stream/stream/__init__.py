"""The pure core: batches in, runs and rows out.

The input is batches of events of one partition, in the order of their offsets, and the results of
runs. The output is runs with their pages, refused and late events, rows of devices, and numbers for
features and calls. ``interface.Core`` is the interface. ``machine.PartitionMachine`` is the
reference, with which ``walle_stream.testing.core_suite`` compares any other core, byte for byte.

``sequence`` orders a device's events, and ``open_pages`` makes pages of them. ``trigger`` and
``task_sets`` find the tasks that an event wakes. ``snapshots`` writes and reads devices.

This package never

- does I/O, reads a clock, starts a thread or draws a random number;
- depends on the cut of events into batches, or on the devices in memory;
- runs a script, or knows about scripts.
"""
