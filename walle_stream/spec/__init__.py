"""YAML definitions: from files and overrides to checked models.

In come files, ``--set`` overrides and the environment. Out goes a ``loader.LoadedPipeline`` of
checked models, or one error for each mistake, with file, line and column. ``models`` has the
language, ``document`` keeps where each value stands, ``schema`` writes it for editors.

The room never opens what a definition names (scripts, sources, brokers), and guesses no value
that a key could have meant.
"""
