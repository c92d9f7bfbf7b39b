"""Isolated Python interpreters that run task scripts, and their pool."""
