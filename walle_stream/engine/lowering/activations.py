"""Activations: composites of a few atomics each (Relu, Elu, Gelu, Clip, HardSigmoid ...)."""
