"""Cast, CastLike, BitCast: dtypes."""
