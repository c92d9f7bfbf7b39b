"""How a partition begins: at its last commit.

In: a database as its last owner left it, closed or killed. Out: a ``parts.part.Opening``.
``recovery`` gives the journal's batches to a machine again and drops what fires.

The room never runs a script, and what it commits it commits before the first turn.
"""
