"""The release pipeline: simulation, beta, gray steps and full, with gates and an audit log."""
