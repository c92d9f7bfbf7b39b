"""Runtime ``cluster``: device hosts on any node of a Ray cluster, and their supervisor.

Input: an assembly whose state follows its partitions. Output: a run that survives the loss of any
process and any node. ``supervisor`` is the named actor that starts hosts; Ray restarts it. ``run``
is the work of the supervisor. ``assigner`` places partitions on hosts. ``client`` is the code of
``walle run``, which only starts, watches and stops.

The hosts are those of ``app.ray``; they know as little of a cluster as possible.
"""
