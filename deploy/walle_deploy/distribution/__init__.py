"""Serving a repository's files: cache rules, signed addresses, a development server."""
