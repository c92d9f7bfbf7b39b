"""What runs inside an isolated interpreter: standard library only."""
