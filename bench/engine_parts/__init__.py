"""The parts of ``make bench-engine``: who runs a model, how long it takes, tables."""
