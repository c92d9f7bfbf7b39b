"""Task packages: one file with a task's definition, script and resources.

``build`` makes them, ``reader`` reads them and documents the layout.
"""
