"""The mapping language, with which a definition maps the rows of any log to events.

The input is a ``RowMapping`` (YAML keys, checked before any row arrives) and rows, which
``records`` cuts from bytes for the columns or fields of a ``layout``. The output is the events of a
row, or an ``InvalidRow`` that names the YAML key. ``expressions`` defines the syntax. ``translate``
and ``compiling`` turn a mapping into one Python function, which can call only ``functions``.

This package never executes text, and knows neither an order of rows nor partitions.
"""
