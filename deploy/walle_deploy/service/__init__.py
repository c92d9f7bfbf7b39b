"""The release service: answers checks with what is new for a device, and nothing else."""
