"""Normalisations: batch, instance, layer, group, RMS, Lp, LRN; softmax and its kin."""
