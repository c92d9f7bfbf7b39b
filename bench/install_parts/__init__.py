"""Parts of the benchmark of installations."""
