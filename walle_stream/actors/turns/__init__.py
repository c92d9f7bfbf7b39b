"""A turn of a partition: what is taken, asked and found out until the next commit.

In: batches (``turn.Delivery``) and what they woke. Out: a ``turn.Turn`` in which each commit
part finds what it writes. ``calling`` makes one call of a VM of many turns' runs, ``attempts``
tries failed runs again, ``task_states`` holds the states between runs, ``origins`` knows in
which record of the source an event came, ``ledger`` counts bytes.

The room never writes a row or sends a frame.
"""
