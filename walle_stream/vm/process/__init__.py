"""VMs in their own processes; a pool uses ``machine.ProcessMachine``.

The input is a program and its confinement (``settings.ProcessSettings``). The output is a
``vm.machine.Machine`` with the same guest, frames and results as a VM in an interpreter, and
the measures in force. ``start`` starts the child. ``child`` and ``guard`` run inside it, with
the standard library alone. ``memory`` is shared by both sides.

The child never sees the script before its measures are in force, and never outlives its host.
The host never waits for a child without a limit, and trusts no number that the child writes.
"""
