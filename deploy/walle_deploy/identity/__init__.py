"""Identity of callers: tokens, certificates behind a proxy, addresses, and rate limits."""
