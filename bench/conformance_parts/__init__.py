"""The parts of ``make conformance-peers``: children of peers, what crosses to them, counts."""
