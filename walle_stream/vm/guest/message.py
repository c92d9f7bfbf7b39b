"""What the cloud tells a device unasked, as ``on_message(ctx, message)`` sees it."""

from json import loads
from typing import Any

type MessageInput = list[Any]
"""[sender, number, JSON bytes]; a list, so that it is no page's tuple."""


class Message:
    """A message to the device; made anew for every run."""

    __slots__ = ("_input_",)

    def __init__(self, message: MessageInput) -> None:
        """Look at what the host sent."""
        self._input_ = message

    @property
    def id(self) -> str:
        """``SENDER:NUMBER``, which no other message to the device has; ``:0`` without a sender."""
        sender, number, _ = self._input_
        return f"{sender}:{number}"

    @property
    def value(self) -> Any:
        """What was sent, decoded anew at each look."""
        return loads(self._input_[2])

    def __repr__(self) -> str:
        """Show which it is."""
        return f"Message({self.id!r})"
