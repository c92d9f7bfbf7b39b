"""What runs on a device: files that are believed only when the signed metadata names them."""
