"""Assembles a pipeline from its definition and runs it.

In: a definition and options. Out: a running pipeline, and one report of it. ``assembly``
makes the parts of a run; ``local`` runs them in one process, ``ray`` in actors of Ray,
``device`` for one device. ``programs`` has tasks, packages and models of definitions,
``figures`` what a run shows of itself, ``queries`` what is read of a data directory from outside.

The room never decides what happens to an event: it makes parts, wires them and ends them.
"""
