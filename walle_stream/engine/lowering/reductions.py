"""Reductions over axes, arg reductions and cumulative ones."""
