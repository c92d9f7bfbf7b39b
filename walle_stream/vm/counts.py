"""Counters and gauges of a pool of VMs, for metrics."""

import msgspec


class VmCounts(msgspec.Struct):
    """Counters of a pool."""

    created: int = 0
    warmed: int = 0
    """Part of ``created``: VMs made ahead, before their task was known."""
    bound: int = 0
    """Part of ``created``: VMs that were bound to a version of a task."""
    resets: int = 0
    """Runs that began with new globals; 0 for a task whose globals cannot change."""
    recycled: int = 0
    """VMs replaced because of their number of runs or their memory."""
    destroyed: int = 0
    """Destroyed VMs; on Python 3.13 each leaks about 2.4 MB."""
    calls: int = 0
    """Completed batches."""
    runs: int = 0
    """Runs in those batches, failed runs included."""
    crashes: int = 0
    """Calls that ended without a completion mark or with a malformed frame."""
    stopped: int = 0
    """Runs that exceeded their task's limit and were told to stop."""
    stuck: int = 0
    """Part of ``stopped``: runs that did not stop, because they loop inside C code."""

    def add(self, other: "VmCounts") -> None:
        """Add the counters of another pool."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class VmStatus(msgspec.Struct, frozen=True):
    """One VM, for metrics."""

    serial: int
    """Number of the VM, unique in this process."""
    task: str
    """The task to which it is bound; empty for a warm VM."""
    calls: int
    """Completed batches."""
    runs: int
    """Runs in those batches, failed runs included."""
    is_running: bool
