"""What the conformance suite of backends is made of: facts, programs, comparisons."""
