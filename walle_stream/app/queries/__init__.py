"""Queries of a data directory from outside, even while a run writes it.

Input: a folder. Output: features, dead letters and traces. ``replay`` returns dead letters to their
source. The package never writes into a store that a run may own.
"""
