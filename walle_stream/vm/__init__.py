"""Isolated Python interpreters that run task scripts, and their pool.

``pool.VmPool`` is what the actors use; ``program.TaskProgram`` is what it runs.
"""
