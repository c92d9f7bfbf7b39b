"""The cloud's reply to a call, the argument of ``on_reply(ctx, reply)``."""

from json import loads
from typing import Any

type ReplyInput = list[Any]
"""[call, service, error, JSON bytes]; a list, to differ from a page's tuple."""


class Reply:
    """A reply of the cloud; every run has its own instance."""

    __slots__ = ("_input_",)

    def __init__(self, reply: ReplyInput) -> None:
        """Wrap the input from the host."""
        self._input_ = reply

    @property
    def call(self) -> str:
        """Name of the call, as ``ctx.call_cloud`` returned it."""
        text: str = self._input_[0]
        return text

    @property
    def service(self) -> str:
        """Name of the called service."""
        text: str = self._input_[1]
        return text

    @property
    def error(self) -> str:
        """Reason for a missing answer; empty if there is an answer."""
        text: str = self._input_[2]
        return text

    @property
    def value(self) -> Any:
        """The answer, decoded again at each access; None if it is missing."""
        return loads(self._input_[3])

    def __repr__(self) -> str:
        """Show the call, and its error if it failed."""
        error = f", error={self.error!r}" if self.error else ""
        return f"Reply({self.call!r}, {self.service!r}{error})"
