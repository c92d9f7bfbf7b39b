"""The mapping language: how a definition says what a row of anybody's log means.

Comes in: a ``RowMapping`` (YAML keys, checked before any row is there) and rows, cut from bytes
by ``records`` for the columns or fields that a ``layout`` knows. Goes out: events of a row, or an
``InvalidRow`` that names the YAML key. ``expressions`` says what may be written, ``translate``
and ``compiling`` make one Python function of a mapping, ``functions`` is all that it can call.

Never here: text that is executed, an order of rows, a partition.
"""
