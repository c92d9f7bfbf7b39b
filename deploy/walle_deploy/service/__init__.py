"""The release service: it answers checks with the versions that are new for a device."""
