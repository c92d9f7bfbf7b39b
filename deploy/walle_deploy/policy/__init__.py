"""Policies: the conditions of releases, their evaluation, and the index over all releases."""
