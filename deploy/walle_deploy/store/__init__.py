"""The release store on SQLite or PostgreSQL; one transaction writes state and audit entry."""
