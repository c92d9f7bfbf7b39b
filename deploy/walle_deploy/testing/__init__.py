"""Proofs of the deployment platform that users can run themselves."""
