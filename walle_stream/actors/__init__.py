"""Actors, device hosts and the cloud: the only place where decisions meet I/O."""
