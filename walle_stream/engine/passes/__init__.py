"""Passes: programs in, better programs out; each keeps what the program gives."""
