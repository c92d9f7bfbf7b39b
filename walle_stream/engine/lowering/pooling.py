"""Pooling of any number of axes, and its inverses."""
