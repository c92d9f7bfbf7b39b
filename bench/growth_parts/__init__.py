"""The parts of ``make bench-growth``."""
