"""Assembly and runtimes of a pipeline.

Input: a definition and options. Output: a running pipeline, and one report of the run. ``assembly``
makes the parts of a run. ``local`` runs them in one process, ``ray`` in Ray actors, ``device`` for
one device. ``programs`` holds the tasks, packages and models of definitions. ``figures`` holds
metrics, status and logs. ``queries`` reads a data directory from outside.

The package never decides what happens to an event: it makes parts, connects them and closes them.
"""
