"""The release pipeline: simulation, beta, gray steps, full, with gates and an audit log."""
