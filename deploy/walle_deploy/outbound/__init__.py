"""Requests to untrusted servers, for all packages."""
