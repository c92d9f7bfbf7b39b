"""The parts of ``make bench-vm``; each is run in a process of its own by ``bench/vm.py``."""
