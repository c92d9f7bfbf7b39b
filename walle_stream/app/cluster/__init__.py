"""Runtime ``cluster``: device hosts on any node of a Ray cluster, and who looks after them.

In: an assembly whose state follows its partitions. Out: a run that survives any process and
any node of it. ``supervisor`` is the named actor that starts hosts, and that Ray starts again;
``run`` is what it does; ``assigner`` says who has which partition; ``client`` is what
``walle run`` does, which only starts, watches and stops.

Hosts are those of ``app.ray``: they know as little of a cluster as possible.
"""
