"""How a partition begins: at its last commit, in agreement with the cloud side.

In: a database as its last owner left it, closed or killed. Out: a ``parts.part.Opening``.
``recovery`` gives the journal's batches to a machine again and drops what fires, ``resuming``
compares with the cloud side what was sent and what was merged.

The room never runs a script, and what it commits it commits before the first turn.
"""
