"""Parts of the bench of the release service."""
