"""The parts of ``make bench-latency``; each measurement is a process of its own."""
