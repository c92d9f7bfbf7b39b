"""The parts of ``make bench-peers``: the job, its contenders, each run in a process of its own."""
