"""Resize, grids and regions of interest: weighted reads."""
