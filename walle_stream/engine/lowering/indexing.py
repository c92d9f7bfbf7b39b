"""Gather and scatter families, one-hot, compress."""
