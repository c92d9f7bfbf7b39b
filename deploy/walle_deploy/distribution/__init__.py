"""What serves a repository's files: cache rules, signed addresses, a development server."""
