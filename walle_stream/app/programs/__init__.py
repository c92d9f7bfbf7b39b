"""Code that a definition names: tasks, packages, functions, models.

Input: files beside a definition, and packages that arrive while a host runs. Output: checked
programs for VMs, with the isolation that each needs. The package never runs one.
"""
