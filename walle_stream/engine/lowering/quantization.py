"""Quantised tensors: to and from whole numbers, and products of them."""
