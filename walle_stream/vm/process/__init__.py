"""VMs in processes of their own: ``machine.ProcessMachine`` is what a pool uses.

``child`` and ``guard`` run inside the child, with the standard library alone.
"""
