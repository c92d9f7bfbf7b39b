"""Connectors to outside systems, each an entry point of ``walle_stream.connectors``."""
