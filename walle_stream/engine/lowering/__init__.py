"""Lowering: every operator becomes atomic operators and the raster.

``registry`` has the rules by operator, ``builder`` collects the steps that they emit, and ``trace``
walks a graph. The other modules are families of rules.
"""
