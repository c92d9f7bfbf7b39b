"""The device's side of releases: an agent that installs only files with signed metadata."""
