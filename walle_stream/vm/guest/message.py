"""A message from the cloud to a device, the argument of ``on_message(ctx, message)``."""

from json import loads
from typing import Any

type MessageInput = list[Any]
"""[sender, number, JSON bytes]; a list, to differ from a page's tuple."""


class Message:
    """A message to the device; every run has its own instance."""

    __slots__ = ("_input_",)

    def __init__(self, message: MessageInput) -> None:
        """Wrap the input from the host."""
        self._input_ = message

    @property
    def id(self) -> str:
        """``SENDER:NUMBER``, unique for the device; ``:0`` without a sender."""
        sender, number, _ = self._input_
        return f"{sender}:{number}"

    @property
    def value(self) -> Any:
        """The sent value, decoded again at each access."""
        return loads(self._input_[2])

    def __repr__(self) -> str:
        """Show the message's id."""
        return f"Message({self.id!r})"
