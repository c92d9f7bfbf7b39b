"""The ``walle`` command."""
