"""The cloud side of a tunnel: fences senders, merges features, keeps them, answers look-ups.

In: what devices sent, in the order of each lane of the tunnel. Out: rows of a feature table, with
what was seen of each device and the lane's position in the same write batch; answers to look-ups;
reports, for a release service. ``features`` is the table of a whole tunnel, inside a run;
``partition_table`` is that of one partition of a topic, with a bound on what is kept, and
``partitions`` has those that one worker was given. Nothing here knows a broker.

The room never merges a feature twice, and holds no position of what is not merged.
"""
