"""Reads a data directory from outside, also while a run writes it.

In: a folder. Out: features, dead letters, traces; letters go back to their source
(``replay``). The room never writes into a store that a run may own.
"""
