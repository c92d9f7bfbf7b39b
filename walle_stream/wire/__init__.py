"""Byte layouts that cross a process, a disk or a network.

In come values, out go bytes, and the other way round. Bytes are not trusted: lengths, checksums and
versions are looked at before anything is made of them, and an ``EnvelopeError`` or an error of the
source says what is wrong.

The room never unpickles, never reads or writes anything itself, and keeps nothing.
"""
