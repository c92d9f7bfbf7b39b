"""The parts of ``make bench-fleet``; each is run in a process of its own by ``bench/fleet.py``."""
