"""The pure core: batches in, what to run and what to store out.

In come batches of events of one partition, in the order of their offsets, and what runs gave.
Out go runs with their pages, refused and late events, rows of devices, and numbers for features
and calls. ``interface.Core`` is the seam; ``machine.PartitionMachine`` is the reference, to which
``walle_stream.testing.core_suite`` compares any other core, byte for byte.

``sequence`` puts a device's events in order, ``open_pages`` makes pages of them, ``trigger`` and
``task_sets`` say which tasks a page wakes, ``snapshots`` writes and reads what a device is.

The room never

- does I/O, looks at a clock, starts a thread or draws a random number;
- depends on how events were cut into batches, or on which devices are in memory;
- runs a script, or knows what one is.
"""
