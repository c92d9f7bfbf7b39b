"""Task packages: one file with a task's definition, script and resources.

In comes a task's definition with its files, out comes the file's bytes (``build``); in comes
such a file, out comes a program that was checked here (``reader``, which documents the
layout). ``asking`` runs inside other interpreters, which check the script, too.

The room never unmarshals or executes anything of a package, inflates more than the file's
directory declares, compiles before all of it is right, or gives two results for one input.
"""
