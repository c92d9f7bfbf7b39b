"""Parts of the conformance suite of backends: facts, programs, comparisons."""
