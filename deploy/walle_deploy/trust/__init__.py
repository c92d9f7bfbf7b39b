"""The publisher's side of signatures: keys, signed metadata, the repository of targets."""
