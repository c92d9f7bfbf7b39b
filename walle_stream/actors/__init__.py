"""Actors and device hosts: the only place where decisions meet I/O.

Input: batches of a source, and messages from a tunnel. Output: commits of partitions, and frames
for the tunnel.

``device_host`` is the actor that reads batches and gives them to its partitions. ``partition`` is
the loop of one partition: take, run (``runs``), let each part contribute, commit. ``turns`` holds
the data of a turn, ``parts`` the parts of a commit, ``rows`` the rows, ``plan`` the settings of a
partition, ``opening`` its start. ``engine`` lets Ray actors run models. The other modules define an
actor: one thread, a bounded mailbox, a supervisor.

The package never

- decides the meaning of an event (``stream``), or the rights of a guest (``vm``);
- commits half a turn, or sends frames that are not durable yet;
- reads a definition: ``app`` passes in what it needs.
"""
