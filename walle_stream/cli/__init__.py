"""The ``walle`` command: options, one line for each error, exit codes.

In come arguments. Out go lines for people, or one JSON object with ``--json``; and an exit code of
the table in ``__main__``. Each command is a function that calls ``app``; commands of connectors and
of the deployment platform are entry points.

The room never decides anything that ``app`` could be asked, and shows no traceback for bad input.
"""
