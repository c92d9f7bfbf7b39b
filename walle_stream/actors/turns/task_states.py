"""Task state of the devices in memory: input and output of the VMs.

It is a cache of the store's state table with the changes of the current batch. It holds encoded
values (JSON made in the guest); the host never decodes them.
"""

from collections.abc import Callable, Iterable


class TaskStates:
    """State of all tasks of the active devices of one partition. One thread."""

    def __init__(self, load: Callable[[str, str], dict[str, bytes]]) -> None:
        """Start with an empty cache; ``load`` reads the state of (device, task) from the store."""
        self._load = load
        self._states: dict[str, dict[str, dict[str, bytes]]] = {}

    def of_task(self, task: str) -> Callable[[str], dict[str, bytes]]:
        """Return a function from a device to its state for a task.

        The returned state belongs to the cache: change it only by ``merge``.
        """
        states = self._states.setdefault(task, {})
        load = self._load

        def state_of(device_id: str) -> dict[str, bytes]:
            state = states.get(device_id)
            if state is None:
                state = states[device_id] = load(device_id, task)
            return state

        return state_of

    def forget(self, device_ids: Iterable[str]) -> None:
        """Drop passivated devices; only after a commit."""
        states = self._states.values()
        for device_id in device_ids:
            for by_device in states:
                by_device.pop(device_id, None)
