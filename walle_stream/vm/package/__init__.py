"""Task packages: one file with a task's definition, script and resources.

``build`` turns a task's definition and files into the bytes of a package. ``reader``, which
documents the layout, turns a package into a checked program. ``asking`` runs inside other
interpreters, which check the script, too.

This package never unmarshals or executes a part of a task package, and never inflates more
than the file's directory declares. It compiles only after every check, and gives the same
result for the same input.
"""
