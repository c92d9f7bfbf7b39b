"""Task state of the devices in memory: what goes into the VMs and comes back.

A cache over the store's state table with the changes of the current batch. It
holds the encoded values (JSON made in the guest); the host never looks inside.
"""

from collections.abc import Callable, Iterable, Mapping


class TaskStates:
    """State of all tasks of the active devices of one partition. One thread."""

    def __init__(self, load: Callable[[str, str], dict[str, bytes]]) -> None:
        """Start with an empty cache.

        Args:
            load: Reads the state of (device, task) from the store.
        """
        self._load = load
        self._states: dict[str, dict[str, dict[str, bytes]]] = {}

    def get(self, device_id: str, task: str) -> dict[str, bytes]:
        """Return a device's state for a task; borrowed, do not change it."""
        tasks = self._states.get(device_id)
        if tasks is None:
            tasks = self._states[device_id] = {}
        state = tasks.get(task)
        if state is None:
            state = tasks[task] = self._load(device_id, task)
        return state

    def apply(self, device_id: str, task: str, changes: Mapping[str, bytes | None]) -> None:
        """Take over what a run changed.

        Args:
            device_id: The device.
            task: The task.
            changes: New values by key; None deletes the key.
        """
        state = self.get(device_id, task)
        for key, value in changes.items():
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value

    def forget(self, device_ids: Iterable[str]) -> None:
        """Drop devices that were passivated; only after a commit."""
        for device_id in device_ids:
            self._states.pop(device_id, None)
