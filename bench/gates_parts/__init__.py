"""Parts of the bench of the gates."""
