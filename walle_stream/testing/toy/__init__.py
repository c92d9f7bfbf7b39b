"""A backend of the atomic operators and a raster in plain Python: N_aop + 1 kernels suffice.

Elements are Python scalars in flat lists, an operator is a loop over them. numpy
carries arrays in and out, and computes nothing.
"""
