"""Assembles a pipeline from its definition and runs it."""
