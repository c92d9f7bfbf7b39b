"""A turn of a partition: its input, its runs and their results until the next commit.

Input: batches (``turn.Delivery``) and the runs that they wake. Output: a ``turn.Turn``, in which
each commit part finds its data. ``calling`` combines the runs of several turns into one call of a
VM. ``attempts`` retries failed runs. ``task_states`` holds the states between runs. ``origins``
finds the source record of an event. ``ledger`` counts bytes.

The package never writes a row or sends a frame.
"""
