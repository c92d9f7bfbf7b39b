"""Operators, who may change releases: people with tokens of an issuer, and their roles."""
