"""Elementwise operators that need more than one atomic: Mod, BitShift, IsInf, Clip and others."""
