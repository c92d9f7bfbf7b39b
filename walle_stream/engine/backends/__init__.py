"""Backends: the kernels of the atomic operators and a raster, each."""
