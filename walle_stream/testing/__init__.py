"""Test kit that ships with the library: conformance suites, oracles, faults."""
