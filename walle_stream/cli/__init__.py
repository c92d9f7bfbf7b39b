"""The ``walle`` command: options, one line for each error, exit codes.

The input is arguments. The output is lines for people, or one JSON object with ``--json``, and an
exit code from the table in ``__main__``. Each command is a function that calls ``app``. Commands of
connectors and of the deployment platform are entry points.

This package leaves every decision to ``app``, and shows no traceback for bad input.
"""
