"""What a definition names as code: tasks, packages, functions, models.

In: files beside a definition, and packages that arrive while a host runs. Out: programs
that a VM takes, each checked, with the isolation that it needs. The room never runs one.
"""
