"""Passes: each makes a program cheaper, and keeps its outputs."""
