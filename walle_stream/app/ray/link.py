"""A host's calls of the cloud side's process, through its deaths."""

from collections.abc import Mapping, Sequence
from threading import Condition
from typing import Any

from walle_stream.errors import TunnelClosedError, WalleError
from walle_stream.types import UplinkFrame


class RayLink:
    """Implements ``CloudLink``. The driver hands over the actor, and the next one."""

    def __init__(self) -> None:
        """Begin without a cloud side: calls wait for one."""
        self._condition = Condition()
        self._actor: Any = None
        self._is_closed = False

    def connect(self, actor: Any) -> None:
        """Call this actor, Ray's handle of a ``CloudProcess``, from now on."""
        with self._condition:
            self._actor = actor
            self._condition.notify_all()

    def close(self) -> None:
        """Let no call wait any more."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()

    def append(self, frames: Sequence[UplinkFrame]) -> None:
        """Append frames; see ``CloudLink.append``."""
        self._call("append", frames)

    def messages(
        self, wanted: Mapping[int, tuple[int, int]]
    ) -> Mapping[int, Sequence[tuple[int, bytes]]]:
        """Return messages; see ``CloudLink.messages``."""
        found: Mapping[int, Sequence[tuple[int, bytes]]] = self._call("messages", wanted)
        return found

    def ask(self, question: Any) -> Any:
        """Put a question to the cloud actor; see ``CloudLink.ask``."""
        return self._call("ask", question)

    def _call(self, method: str, argument: Any) -> Any:
        import ray  # noqa: PLC0415 - only where Ray runs

        while True:
            actor = self._wait()
            try:
                return ray.get(getattr(actor, method).remote(argument))
            except ray.exceptions.RayActorError:
                # put again to the next one: its receiver knows what it has seen
                self._forget(actor)
            except ray.exceptions.RayTaskError as error:
                cause = error.cause
                if isinstance(cause, TunnelClosedError):
                    raise cause from None
                # the cloud side tells the driver itself; here its way is closed
                kind = type(cause).__name__ if isinstance(cause, WalleError) else "error"
                raise TunnelClosedError(f"the cloud side failed ({kind}: {cause})") from error

    def _wait(self) -> Any:
        with self._condition:
            self._condition.wait_for(lambda: self._is_closed or self._actor is not None)
            if self._is_closed:
                raise TunnelClosedError("the way to the cloud is closed: frames stay in the outbox")
            return self._actor

    def _forget(self, actor: Any) -> None:
        with self._condition:
            if self._actor is actor:
                self._actor = None
