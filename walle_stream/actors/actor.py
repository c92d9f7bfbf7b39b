"""Actors: one thread, one mailbox, one message at a time.

Only the actor itself touches its state. ``tell`` needs no answer; ``ask`` waits for one. Every
``ask`` gets an answer or ``ActorDeadError``, even if its message was still waiting when the actor
died. Devices are not actors of this kind, as a thread each would not scale. They are *virtual*
actors inside a :class:`~walle_stream.actors.device_host.DeviceHost`.
"""

import logging
from threading import Thread, current_thread
from typing import Any

from walle_stream.actors.mailbox import MAILBOX_MAX_BYTES, Envelope, Mailbox, Reply
from walle_stream.errors import ActorDeadError, AskTimeoutError, WalleError

_log = logging.getLogger(__name__)


class Actor:
    """Base class of all actors; override the hooks. All hooks run in the actor's thread."""

    name = "actor"

    idle_interval_s: float | None = None
    """Time without a message before ``on_idle``; None waits for ever."""

    def on_start(self) -> None:
        """Open the actor's resources, before any message. May block.

        An error ends the actor: every ask fails, and ``ActorRef.failure`` holds the error.
        """

    def on_message(self, message: Any) -> Any:
        """Handle one message and return the answer for an ask.

        May block. An error goes to ``on_failure`` and, for an ask, to the asker.
        """

    def on_idle(self) -> None:
        """Run when no message came for ``idle_interval_s``; may block."""

    def on_failure(self, error: BaseException) -> bool:
        """Return whether to continue after an error of a hook; by default the actor stops."""
        _log.debug("actor %s stops: %s", self.name, error)
        return False

    def on_stop(self) -> None:
        """Release the actor's resources; runs last, even after a failure."""


class ActorRef:
    """Handle of a running actor for its callers. Thread-safe."""

    def __init__(self, actor: Actor, mailbox_max_bytes: int = MAILBOX_MAX_BYTES) -> None:
        """Start a new actor in its own thread; from now on only that thread touches it."""
        self.name = actor.name
        self.failure: BaseException | None = None
        self._actor = actor
        self._mailbox = Mailbox(mailbox_max_bytes)
        self._thread = Thread(target=self._run, name=actor.name, daemon=True)
        self._thread.start()

    def tell(self, message: Any, size_bytes: int = 0) -> None:
        """Send without waiting for an answer; blocks while the mailbox is full.

        The message belongs to the actor from now on. ``size_bytes`` counts towards the mailbox's
        limit.

        Raises:
            ActorDeadError: The actor has stopped.
        """
        try:
            self._mailbox.put(Envelope(message, size_bytes))
        except ActorDeadError as error:
            raise self._dead() from error

    def ask(self, message: Any, timeout_s: float | None = None) -> Any:
        """Send a message and wait for the answer (None: for ever); the message is then the actor's.

        Raises:
            ActorDeadError: The actor stopped before it answered.
            AskTimeoutError: No answer came in time.
        """
        reply = Reply()
        try:
            self._mailbox.put(Envelope(message, 0, reply), timeout_s)
        except ActorDeadError as error:
            raise self._dead() from error
        has_answer, value = reply.wait(timeout_s)
        if not has_answer:
            raise AskTimeoutError(
                f"actor {self.name} did not answer {type(message).__name__} in {timeout_s} s"
            )
        if reply.error is not None:
            raise reply.error
        return value

    def stop(self) -> None:
        """Let the actor handle the waiting messages, then end it; never waits."""
        self._mailbox.close()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the end of the actor's thread (None: for ever); return whether it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def is_alive(self) -> bool:
        """Whether the actor's thread still runs."""
        return self._thread.is_alive()

    @property
    def waiting(self) -> list[Any]:
        """The waiting messages."""
        return self._mailbox.messages

    @property
    def mailbox_bytes(self) -> int:
        """Bytes of the waiting messages."""
        return self._mailbox.size_bytes

    def _dead(self) -> ActorDeadError:
        why = f": {self.failure}" if self.failure else ""
        return ActorDeadError(f"actor {self.name} has stopped{why}")

    def _run(self) -> None:
        actor = self._actor
        try:
            actor.on_start()
            self._loop(actor)
        except BaseException as error:  # noqa: BLE001 - last place to see it
            self.failure = error
            if not isinstance(error, WalleError):
                # a receiver of the error may log one line only, but a bug needs its traceback
                _log.exception("actor %s failed", self.name)
        finally:
            self._mailbox.close()
            self._refuse_waiting()
            try:
                actor.on_stop()
            except BaseException as error:  # noqa: BLE001 - same
                self.failure = self.failure or error
            _log.debug("actor %s ended in %s", self.name, current_thread().name)

    def _loop(self, actor: Actor) -> None:
        mailbox = self._mailbox
        while True:
            envelope = mailbox.receive(actor.idle_interval_s)
            if envelope is None and mailbox.is_closed:
                return
            try:
                if envelope is None:
                    actor.on_idle()
                    continue
                value = actor.on_message(envelope.message)
            except BaseException as error:
                if envelope is not None and envelope.reply is not None:
                    envelope.reply.set(None, error)
                if not actor.on_failure(error):
                    raise
            else:
                if envelope.reply is not None:
                    envelope.reply.set(value)

    def _refuse_waiting(self) -> None:
        while (envelope := self._mailbox.receive(0)) is not None:
            if envelope.reply is not None:
                envelope.reply.set(None, self._dead())
