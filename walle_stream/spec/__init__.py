"""YAML definitions: from files and overrides to checked models.

The input is files, ``--set`` overrides and the environment. The output is a
``loader.LoadedPipeline`` of checked models, or one error with file, line and column. ``models``
defines the language, ``document`` keeps the place of each value, and ``schema`` describes the
language for editors.

This package never opens the scripts, sources or brokers that a definition names. It never
guesses a value.
"""
