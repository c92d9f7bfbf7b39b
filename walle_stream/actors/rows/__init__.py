"""Rows of a partition's database.

Input: values. Output: rows in one write batch, with the key layouts of ``store.keys``. The package
never decides when to commit, and does not know turns or parts.
"""
