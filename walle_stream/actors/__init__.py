"""Actors, device hosts and the cloud side: the only place where decisions meet I/O.

In come batches of a source and what a tunnel brings down; out go commits of partitions,
frames for the tunnel, and on the other side features in a table.

``device_host`` is the actor that reads and gives batches to its partitions. ``partition`` is
the loop of one partition: take, run (``runs``), let each part contribute, commit. What a
turn collects is in ``turns``, what commits consist of in ``parts``, the rows in ``rows``, what
is planned for a partition in ``plan``, how it begins in ``opening``. ``cloud`` takes what
arrives, ``engine`` has models computed elsewhere in Ray. The rest is what an actor is: one
thread, a bounded mailbox, a supervisor.

The room never

- decides what an event means (``stream``), or what a guest may do (``vm``);
- commits a part of a turn, or sends what is not durable yet;
- reads a definition: ``app`` hands in what it needs.
"""
