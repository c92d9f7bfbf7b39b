"""Simulation tests: a task's package in cloud VMs that mimic kinds of devices."""
