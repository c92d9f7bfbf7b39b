"""Byte layouts that cross a process, a disk or a network."""
