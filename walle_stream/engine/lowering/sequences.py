"""Sequences and optionals: structure that is known when a graph is lowered."""
