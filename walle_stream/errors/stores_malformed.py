"""A row of a store that holds what no script may make."""

from walle_stream.errors.stores import StoreError


class MalformedRowError(StoreError):
    """A row holds what a script made and what is not well-formed JSON: it was left out.

    All other rows were given before. Such a row was written by an earlier version, or by another
    hand: delete the device's data, or start again with a new directory.
    """

    def __init__(
        self,
        message: str = "",
        partition: int = -1,
        device_id: str = "",
        task: str = "",
        number: int = 0,
        count: int = 0,
    ) -> None:
        """Keep where the first such row is, and how many there are.

        Partition -1 stands for none, an empty task for a message of the cloud, number 0 for a row
        of the state.
        """
        super().__init__(message)
        self.args = (message, partition, device_id, task, number, count)
        self.partition = partition
        self.device_id = device_id
        self.task = task
        self.number = number
        self.count = count
