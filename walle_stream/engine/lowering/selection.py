"""What depends on order: sort, top-k, unique, non-zero, non-maximum suppression."""
