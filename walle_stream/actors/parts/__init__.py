"""Commit parts: what a partition's commit consists of, one file each.

In: a turn (``turn.Turn``), what was taken from batches since the last commit and what its
runs did. Out: rows in the turn's ONE write batch, and whatever leaves once it is durable.
A part never calls another part: what two of them share travels in the turn. ``order`` says
which there are, and which comes first.
"""
