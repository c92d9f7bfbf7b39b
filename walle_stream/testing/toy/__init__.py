"""A backend in plain Python: it needs only N_aop + 1 kernels, atomic operators and a raster.

Elements are Python scalars in flat lists, and an operator is a loop over them. numpy only carries
arrays in and out and computes nothing.
"""
