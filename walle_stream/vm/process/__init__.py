"""VMs in processes of their own: ``machine.ProcessMachine`` is what a pool uses.

In come a program and how it is confined (``settings.ProcessSettings``). Out comes a
``vm.machine.Machine`` with the same guest, frames and results as one in an interpreter, and
the measures that are in force. ``start`` starts the child; ``child`` and ``guard`` run inside
it, with the standard library alone; ``memory`` is what both sides share.

The room never lets the child see the script before it took its measures, waits for a child
without an end, believes a number that the child writes, or leaves one alive without its host.
"""
