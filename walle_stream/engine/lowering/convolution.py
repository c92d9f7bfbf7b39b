"""Convolutions of any number of axes, transposed, grouped, dilated, deformable."""
