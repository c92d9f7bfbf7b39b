"""Requests to servers that are not trusted, for whoever sends them."""
