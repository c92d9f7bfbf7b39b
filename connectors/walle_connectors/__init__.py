"""Adapters to the outside, each an entry point of ``walle_stream.connectors``."""
