"""Byte layouts that cross a process, a disk or a network.

The modules turn values into bytes, and bytes into values. Bytes are not trusted: lengths, checksums
and versions are checked first, and an ``EnvelopeError`` or an error of the source names the
problem.

This package never unpickles, does no I/O, and keeps no state.
"""
