"""The task deployment platform; for now only its place."""
