"""Tensors that are made: ranges, fills, pads, triangles, random numbers."""
