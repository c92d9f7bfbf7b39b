"""The parts of ``make bench-tunnel``; each measurement is a process of its own."""
