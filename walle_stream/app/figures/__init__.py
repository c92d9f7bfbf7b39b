"""What a run shows of itself, while it goes and when it has ended.

In: figures of hosts, readers and the cloud side. Out: metrics, ``status.json``, log lines,
tables of bytes by task. The room never changes a run, and holds up none.
"""
