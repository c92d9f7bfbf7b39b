"""What a partition reads and writes, as rows of its database.

In: values. Out: rows in one write batch, by the key layouts of ``store.keys``. The room
never decides when to commit, and knows neither turns nor parts.
"""
