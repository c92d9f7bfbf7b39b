"""The cloud's answer to a call, as ``on_reply(ctx, reply)`` sees it."""

from json import loads
from typing import Any

type ReplyInput = list[Any]
"""[call, service, error, JSON bytes]; a list, so that it is no page's tuple."""


class Reply:
    """What the cloud answered; made anew for every run."""

    __slots__ = ("_input_",)

    def __init__(self, reply: ReplyInput) -> None:
        """Look at what the host sent."""
        self._input_ = reply

    @property
    def call(self) -> str:
        """What ``ctx.call_cloud`` returned when the question was put."""
        text: str = self._input_[0]
        return text

    @property
    def service(self) -> str:
        """Who was asked."""
        text: str = self._input_[1]
        return text

    @property
    def error(self) -> str:
        """Why there is no answer; empty when there is one."""
        text: str = self._input_[2]
        return text

    @property
    def value(self) -> Any:
        """The answer, decoded anew at each look; None when there is none."""
        return loads(self._input_[3])

    def __repr__(self) -> str:
        """Show the call, and its error if it failed."""
        error = f", error={self.error!r}" if self.error else ""
        return f"Reply({self.call!r}, {self.service!r}{error})"
