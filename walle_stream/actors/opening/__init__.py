"""Opening of a partition at its last commit.

Input: a database that its last owner closed, or left when it was killed. Output: a
``parts.part.Opening``. ``recovery`` gives the journal's batches to a machine again and drops the
fired tasks.

The package never runs a script, and commits its changes before the first turn.
"""
