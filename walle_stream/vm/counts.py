"""What a pool of VMs has done and has, for metrics."""

import msgspec


class VmCounts(msgspec.Struct):
    """What a pool has done."""

    created: int = 0
    warmed: int = 0
    """Of these, VMs that were made ahead, before their task was known."""
    bound: int = 0
    """Of these, VMs that were bound to a version of a task."""
    resets: int = 0
    """Runs that began in globals made anew; where no run can leave anything there, none."""
    recycled: int = 0
    """VMs that were replaced because they were worn: enough runs, or too much memory."""
    destroyed: int = 0
    """VMs destroyed; on Python 3.13 each leaves about 2.4 MB behind."""
    calls: int = 0
    """Batches that came back."""
    runs: int = 0
    """Runs in those batches, failed ones included."""
    crashes: int = 0
    """Calls that ended without a completion mark or with a malformed frame."""
    stopped: int = 0
    """Runs that took longer than their task's limit and were told to stop."""
    stuck: int = 0
    """Of these, runs that did not obey: they loop inside C code."""

    def add(self, other: "VmCounts") -> None:
        """Add what another pool has done."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class VmStatus(msgspec.Struct, frozen=True):
    """One VM, for metrics."""

    serial: int
    """Which VM of this process."""
    task: str
    """The task it is bound to; empty for a warm one."""
    calls: int
    """Batches that came back."""
    runs: int
    """Runs in those batches, failed ones included."""
    is_running: bool
