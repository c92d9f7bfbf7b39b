"""Isolated Python interpreters that run task scripts, and their pool.

In come programs (``program.TaskProgram``) and, per call, the runs that a batch woke, by
device: plain tuples with the device's state (``results.DeviceGroup``). Out come features,
questions to the cloud, log lines and changed state, one result per run in the order of the
runs (``results.GroupResult``). ``pool.VmPool.run`` is the one call of the hot path; it blocks
until a VM is free and done.

``pool`` has a ``task_pool`` per task, that has VMs: a ``virtual_machine`` (an interpreter and
its thread) or a ``process.machine``. Both are a ``machine.Machine``; both run ``guest``.
``gate`` checks and compiles a script, ``frames`` cuts results, ``outputs`` judges them,
``watchdog`` stops runs.

The room never

- unmarshals or unpickles what a guest wrote, or hands on a result that ``outputs`` refused;
- lets one run see another's globals, or another device's data;
- gives a VM to two calls at a time, or uses one whose call failed;
- decides what becomes of a result: it commits nothing, retries no failed run, opens no store;
- imports the core: it knows ports, wire, clock and errors alone.
"""
