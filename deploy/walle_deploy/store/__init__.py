"""Where releases are kept: SQLite or PostgreSQL, state and audit entry in one transaction."""
