"""Planning: the place of each tensor of a program in memory, and the steps that share a loop."""
