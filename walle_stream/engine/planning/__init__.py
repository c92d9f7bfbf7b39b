"""Planning: where each tensor of a program lies, and what is run together."""
