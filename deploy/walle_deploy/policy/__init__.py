"""Who gets which version: conditions, their evaluation, and the index over all releases."""
