"""Parts of a partition's commit, one file each.

Input: a turn (``turn.Turn``) with the batches since the last commit and the results of its runs.
Output: rows in the turn's ONE write batch, and messages that leave once it is durable. A part never
calls another part: shared data travels in the turn. ``order`` lists the parts in their order.
"""
