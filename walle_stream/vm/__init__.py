"""Isolated Python interpreters that run task scripts, and their pool.

The input is programs (``program.TaskProgram``) and, for each call, a batch's runs by device:
plain tuples with the device's state (``results.DeviceGroup``). The output is features, calls
to the cloud, log lines and changed state, with one result per run in the order of the runs
(``results.GroupResult``). ``pool.VmPool.run`` is the only call of the hot path. It blocks until
a VM is free and done.

``pool`` has a ``task_pool`` for each task, which has VMs: a ``virtual_machine`` (an interpreter
and its thread) or a ``process.machine``. Both are a ``machine.Machine``, and both run ``guest``.
``gate`` checks and compiles a script, ``frames`` cuts results, ``outputs`` checks them, and
``watchdog`` stops runs.

This package never

- unmarshals or unpickles bytes that a guest wrote, or returns a result that ``outputs`` refused;
- lets a run see another run's globals, or another device's data;
- gives a VM to two calls at a time, or reuses a VM whose call failed;
- handles results: it commits nothing, retries no failed run, and opens no store;
- imports the core: it imports ports, wire, clock and errors only.
"""
