"""Who asks: tokens, certificates behind a proxy, addresses, and how much each may ask."""
