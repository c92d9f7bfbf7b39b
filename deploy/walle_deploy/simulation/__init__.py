"""Simulation tests: a task's package in cloud VMs that act as kinds of devices."""
