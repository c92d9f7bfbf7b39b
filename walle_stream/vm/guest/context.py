"""What a run can do: the ``ctx`` of ``run(ctx, page)``.

Made anew for every run and dropped with it.
"""

import marshal
from hashlib import blake2b
from random import Random
from typing import Any, Final

from walle_stream.vm.guest.codec import encode_json
from walle_stream.vm.guest.state import State

LOG_MAX_CHARACTERS: Final = 2_000
"""Longest log line; the rest is cut off."""

ENCODING_MAX_BYTES: Final = 65_535
"""Longest encoding: its length travels in 16 bits."""

type Limits = tuple[int, int, int, int, int]
"""Bounds of one run: output bytes, emits, log lines, wall time in milliseconds;
and how many stopped runs quarantine a device's task."""


class Clock:
    """Event time."""

    __slots__ = ("_now_ms",)

    def __init__(self, now_ms: int) -> None:
        """Stop the clock.

        Args:
            now_ms: Event time of the waking event, epoch milliseconds.
        """
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Return the event time of the waking event, epoch milliseconds."""
        return self._now_ms


class Log:
    """Lines for the operator; kept even when the run fails."""

    __slots__ = ("_dropped_count", "_lines", "_max_lines")

    def __init__(self, max_lines: int) -> None:
        """Start empty.

        Args:
            max_lines: Of more, only their number is kept.
        """
        self._max_lines = max_lines
        self._lines: list[tuple[int, str]] = []
        self._dropped_count = 0

    def info(self, text: object, *values: object) -> None:
        """Log a line.

        Args:
            text: Any value; its text is kept.
            *values: Put into the text by ``%``, as ``logging`` does.
        """
        self._add(0, text, values)

    def warning(self, text: object, *values: object) -> None:
        """Log a line that someone should see.

        Args:
            text: Any value; its text is kept.
            *values: Put into the text by ``%``, as ``logging`` does.
        """
        self._add(1, text, values)

    def error(self, text: object, *values: object) -> None:
        """Log a line about a failure.

        Args:
            text: Any value; its text is kept.
            *values: Put into the text by ``%``, as ``logging`` does.
        """
        self._add(2, text, values)

    def print(
        self, *values: object, sep: str | None = " ", end: str | None = "\n", **_: object
    ) -> None:
        """Log a line as ``print`` would write it; the builtin of scripts.

        Args:
            *values: What to print.
            sep: Between the values.
            end: Behind the last one; line ends are dropped.
            **_: ``file`` and ``flush`` are ignored.
        """
        text = (" " if sep is None else sep).join([str(value) for value in values])
        self._add(0, text + ("" if end is None else end).rstrip("\r\n"))

    def _add(self, level: int, text: object, values: tuple[object, ...] = ()) -> None:
        if len(self._lines) < self._max_lines:
            line = str(text) % values if values else str(text)
            self._lines.append((level, line[:LOG_MAX_CHARACTERS]))
        else:
            self._dropped_count += 1

    def taken(self) -> list[tuple[int, str]]:
        """Return the lines so far with their level codes; for the session."""
        lines = self._lines
        if self._dropped_count:
            return [*lines, (1, f"{self._dropped_count} more lines were dropped")]
        return lines


class Context:
    """One run's access to its device, its task and its output."""

    __slots__ = (
        "_clock_ms",
        "_config",
        "_emitted",
        "_given_config",
        "_limits",
        "_log",
        "_output_bytes",
        "_position",
        "_random",
        "device_id",
        "state",
        "task",
    )

    def __init__(
        self,
        device_id: str,
        task: str,
        state: State,
        position: int,
        clock_ms: int,
        given_config: dict[str, Any] | bytes,
        limits: Limits,
    ) -> None:
        """Begin a run.

        Args:
            device_id: The device whose event woke the task.
            task: The task's name.
            state: The device's state of this task.
            position: Trigger position: which of the device's events it was.
            clock_ms: Event time of that event.
            given_config: The task's config: marshalled, or as it is when no value
                of it can be changed.
            limits: Bounds of the run.
        """
        self.device_id = device_id
        """The device whose event woke the task."""
        self.task = task
        """The task's name."""
        self.state = state
        """What the task keeps for this device between runs."""
        self._log: Log | None = None
        self._position = position
        self._clock_ms = clock_ms
        self._given_config = given_config
        self._limits = limits
        self._config: dict[str, Any] | None = None
        self._random: Random | None = None
        self._emitted: list[bytes] = []  # feature, encoding, feature, encoding, ...
        self._output_bytes = 0

    @property
    def log(self) -> Log:
        """Lines for the operator."""
        if self._log is None:
            self._log = Log(self._limits[2])
        return self._log

    @property
    def config(self) -> dict[str, Any]:
        """The task's config; a fresh copy per run, changing it changes nothing else."""
        if self._config is None:
            given = self._given_config
            if isinstance(given, dict):
                self._config = given.copy()
            else:
                self._config = marshal.loads(given)  # noqa: S302 - made by the host
        return self._config

    @property
    def clock(self) -> Clock:
        """Event time: the only clock of a guest."""
        return Clock(self._clock_ms)

    @property
    def random(self) -> Random:
        """Random numbers, the same when the run is repeated.

        Seeded by device, task and trigger position.
        """
        if self._random is None:
            seed = f"{self.device_id}\0{self.task}\0{self._position}".encode()
            digest = blake2b(seed, digest_size=16).digest()
            self._random = Random(int.from_bytes(digest, "big"))  # noqa: S311 - repeatable on purpose
        return self._random

    def emit(self, feature: dict[str, Any], encoding: bytes | None = None) -> None:
        """Send a feature to the cloud, if the run succeeds.

        Encoded at once: what the script does to it later is not sent.

        Args:
            feature: JSON values; written compactly, keys in insertion order.
            encoding: A short binary form to travel beside the feature.

        Raises:
            TypeError: The feature is not a dict of JSON values, or the
                encoding is not bytes.
            ValueError: NaN or infinity, invalid text, an encoding longer than
                ``ENCODING_MAX_BYTES``, or more bytes or features than the
                task's limits allow in one run.
        """
        if not isinstance(feature, dict):
            raise TypeError(f"a feature is a dict, not {type(feature).__name__}")
        body = encode_json(feature)
        if encoding is None:
            encoding = b""
        elif type(encoding) is not bytes:
            if not isinstance(encoding, (bytes, bytearray, memoryview)):
                raise TypeError(f"an encoding is bytes, not {type(encoding).__name__}")
            encoding = bytes(encoding)
        if len(encoding) > ENCODING_MAX_BYTES:
            raise ValueError(
                f"an encoding has at most {ENCODING_MAX_BYTES} bytes, this one {len(encoding)}"
            )
        self._output_bytes += len(body) + len(encoding)
        emitted, limits = self._emitted, self._limits
        if self._output_bytes > limits[0]:
            raise ValueError(f"a run may emit {limits[0]} bytes (limits.outputBytes)")
        if len(emitted) >= 2 * limits[1]:
            raise ValueError(f"a run may emit {limits[1]} features (limits.emits)")
        emitted += (body, encoding)

    def taken(self) -> tuple[list[bytes], list[tuple[int, str]]]:
        """Return what was emitted (feature, encoding, ...) and logged; for the session."""
        return self._emitted, [] if self._log is None else self._log.taken()
