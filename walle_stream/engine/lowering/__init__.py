"""Lowering: every operator becomes atomic operators and the raster.

``registry`` has the rules by operator, ``builder`` what they emit, ``trace`` walks
a graph; the other modules are families of rules.
"""
