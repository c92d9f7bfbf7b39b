"""The ``ctx`` of ``run(ctx, page)``: a run's access to its device, task and output.

Every run has its own. The gate refuses names like ``_emitted_`` to scripts (``rules``).
"""

import marshal
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from random import Random
from typing import Any, Final

from walle_stream.vm.guest.codec import cut_json, encode_json
from walle_stream.vm.guest.deferral import Deferral, fill
from walle_stream.vm.guest.state import State, refuse_copy
from walle_stream.vm.guest.tensors import Tensor, concatenate, make_tensor, run_model

LOG_MAX_CHARACTERS: Final = 2_000
"""Longest log line; the rest is cut off."""

ENCODING_MAX_BYTES: Final = 65_535
"""Longest encoding; its length has 16 bits in a frame."""

SERVICE_MAX_BYTES: Final = 200
_NO_CALLS: Final[list[bytes]] = []
"""Calls of a run without calls; only read."""

type Limits = tuple[int, int, int, int, int, int, int]
"""Bounds of one run: output bytes, emits, log lines, wall time in milliseconds, stopped
runs that quarantine a device's task, steps (0 for no limit), and bytes of a device's state."""


def plain_text(text: str) -> str:
    """Return a text as a plain ``str``, because a script's own subclass could lie."""
    return "".join((text,))  # noqa: FLY002 - an f-string asks the text for its format


def _plain_bytes(encoding: object) -> bytes:
    if not isinstance(encoding, (bytes, bytearray, memoryview)):
        raise TypeError(f"an encoding is bytes, not {type(encoding).__name__}")
    return b"".join((encoding,))  # a script's own subclass of bytes could lie


class Clock:
    """Event time."""

    __slots__ = ("_now_ms_",)

    def __init__(self, now_ms: int) -> None:
        """Fix the clock at an event time in epoch milliseconds."""
        self._now_ms_ = now_ms

    def now_ms(self) -> int:
        """Return the time of the event that woke the task, in epoch milliseconds."""
        return self._now_ms_


class Log:
    """Lines for the operator; kept even when the run fails."""

    __slots__ = ("_dropped_count_", "_lines_", "_max_lines_")

    def __init__(self, max_lines: int) -> None:
        """Start empty; lines beyond ``max_lines`` are only counted."""
        self._max_lines_ = max_lines
        self._lines_: list[tuple[int, str]] = []
        self._dropped_count_ = 0

    __reduce__ = refuse_copy("ctx.log")

    def info(self, text: object, *values: object) -> None:
        """Log a line; ``%`` inserts the values into the text, as in ``logging``."""
        self._add_(0, text, values)

    def warning(self, text: object, *values: object) -> None:
        """Log a warning; see ``info``."""
        self._add_(1, text, values)

    def error(self, text: object, *values: object) -> None:
        """Log an error; see ``info``."""
        self._add_(2, text, values)

    def print(
        self, *values: object, sep: str | None = " ", end: str | None = "\n", **_: object
    ) -> None:
        """Log a line as ``print`` would write it; ``file`` and ``flush`` are ignored."""
        text = (" " if sep is None else sep).join([str(value) for value in values])
        self._add_(0, text + ("" if end is None else end).rstrip("\r\n"))

    def _add_(self, level: int, text: object, values: tuple[object, ...] = ()) -> None:
        if len(self._lines_) < self._max_lines_:
            line = str(text) % values if values else str(text)
            self._lines_.append((level, plain_text(line)[:LOG_MAX_CHARACTERS]))
        else:
            self._dropped_count_ += 1

    def _taken_(self) -> list[tuple[int, str]]:
        # the lines so far with their level codes, for the session
        lines = self._lines_
        if self._dropped_count_:
            return [*lines, (1, f"{self._dropped_count_} more lines were dropped")]
        return lines


class Context:
    """One run's access to its device, its task and its output.

    ``bind_context`` makes the class that a VM uses. The class holds everything
    that all runs of a task share, so that an instance for a run is cheap.
    """

    __slots__ = (
        "_called_",
        "_clock_ms_",
        "_emitted_",
        "_log_",
        "_made_config_",
        "_output_bytes_",
        "_position_",
        "_random_",
        "device_id",
        "state",
    )

    task: str
    """The task's name."""
    _config_: dict[str, Any] | bytes
    _limits_: Limits
    _resources_: dict[str, bytes]
    _host_: Deferral
    # made at the run's first access
    _made_config_: dict[str, Any]
    _random_: Random

    def __init__(self, device_id: str, position: int, clock_ms: int, state: State) -> None:
        """Begin a run with its device, trigger position, event time and state."""
        self.device_id = device_id
        """The device whose event woke the task."""
        self.state = state
        """The task's state of this device, kept between runs."""
        self._position_ = position
        self._clock_ms_ = clock_ms
        self._log_: Log | None = None
        self._called_ = _NO_CALLS  # service, question, service, question, ...
        self._output_bytes_ = 0
        self._emitted_: list[bytes] = []  # feature, encoding, feature, encoding, ...

    __reduce__ = refuse_copy("ctx")

    @property
    def log(self) -> Log:
        """Lines for the operator."""
        if self._log_ is None:
            self._log_ = Log(self._limits_[2])
        return self._log_

    @property
    def config(self) -> dict[str, Any]:
        """The task's config; each run has its own copy."""
        try:
            return self._made_config_
        except AttributeError:  # the run's first access
            packed = self._config_
            config = (
                packed.copy()
                if isinstance(packed, dict)
                else marshal.loads(packed, allow_code=False)  # noqa: S302 - made by the host
            )
            self._made_config_ = config
            return config

    @property
    def clock(self) -> Clock:
        """Event time, the only clock of a guest."""
        return Clock(self._clock_ms_)

    @property
    def random(self) -> Random:
        """Random numbers, the same when the run is repeated.

        Seeded by device, task and trigger position.
        """
        try:
            return self._random_
        except AttributeError:  # the run's first access
            seed = f"{self.device_id}\0{self.task}\0{self._position_}".encode()
            digest = blake2b(seed, digest_size=16).digest()
            numbers = self._random_ = Random(int.from_bytes(digest, "big"))  # noqa: S311 - repeatable on purpose
            return numbers

    def resource(self, name: str) -> bytes:
        """Return a file of the task by its name in ``spec.resources``.

        Raises:
            KeyError: The task has no such resource.
        """
        data = self._resources_.get(name)
        if data is None:
            known = ", ".join(sorted(self._resources_)) or "none"
            raise KeyError(f"there is no resource {name!r} (spec.resources): this task has {known}")
        return data

    def tensor(
        self, values: object, dtype: str | None = None, shape: Sequence[int] | None = None
    ) -> Tensor:
        """Make a tensor; operators and methods on it compute nothing until a value is needed.

        Args:
            values: A number, nested lists of numbers, or elements as bytes
                (little-endian, row-major).
            dtype: ``float32``, ``float64``, ``int32``, ``int64`` or ``uint8``.
                The default is int64 for whole numbers, else float32.
            shape: Shape of elements given as bytes; by default that of the lists.

        Raises:
            TypeError: A value is not a number.
            ValueError: Lists have different lengths, the dtype is unknown, or
                the shape does not fit.
        """
        return make_tensor(self._host_, values, dtype, shape)

    def concat(self, tensors: Iterable[Tensor], axis: int = 0) -> Tensor:
        """Concatenate one or more tensors along a dimension."""
        return concatenate(self._host_, tensors, axis)

    def run_model(self, model: str, *inputs: object, output: int = 0) -> Tensor:
        """Run a model of the host, as part of a tensor expression.

        Nothing is computed until a value is needed. A model runs once if all its
        needed outputs are in one request.

        Args:
            model: A name of the pipeline's ``spec.models``.
            *inputs: Tensors, or values that ``tensor`` takes.
            output: Number of the model's output, from 0.

        Raises:
            TypeError: An input is neither a tensor nor numbers, or the name is
                not text.
        """
        if not isinstance(model, str):
            raise TypeError(f"a model's name is text, not {type(model).__name__}")
        return run_model(self._host_, plain_text(model), inputs, output)

    def evaluate(self, *tensors: Tensor) -> None:
        """Let the host compute tensors, all in one request.

        ``tolist``, ``item``, ``tobytes``, ``shape`` and ``dtype`` do this by
        themselves for one tensor. The time does not count as the run's.

        Raises:
            RuntimeError: The host refused, because shapes do not fit or the
                request is too large.
        """
        self._host_.evaluate(tensors)

    def emit(self, feature: dict[str, Any], encoding: bytes | None = None) -> None:
        """Send a feature to the cloud, if the run succeeds.

        The feature is encoded at once, so later changes of it are not sent. A tensor in
        it is replaced by the value of its ``tolist``. Tensors of all runs of a batch are
        evaluated together, in one request after the last run. If that fails, this call
        fails.

        Args:
            feature: JSON values and tensors, written compactly, with keys in
                insertion order.
            encoding: A short binary form that travels beside the feature.

        Raises:
            TypeError: The feature is not a dict of JSON values, or the
                encoding is not bytes.
            RuntimeError: The host refused to compute a tensor.
            ValueError: The feature has NaN, infinity or invalid text, the encoding
                is longer than ``ENCODING_MAX_BYTES``, or the run exceeds its
                task's limit of bytes or features.
        """
        if not isinstance(feature, dict):
            raise TypeError(f"a feature is a dict, not {type(feature).__name__}")
        tensors: list[Tensor] | None = None
        try:
            body = encode_json(feature)
        except TypeError:
            pieces, tensors = cut_json(feature, Tensor)
            if not tensors:
                raise
            body = b"0".join(pieces)  # the shortest possible text, for the size
        if encoding is None:
            encoding = b""
        elif type(encoding) is not bytes:
            encoding = _plain_bytes(encoding)
        if len(encoding) > ENCODING_MAX_BYTES:
            raise ValueError(
                f"an encoding has at most {ENCODING_MAX_BYTES} bytes, this one {len(encoding)}"
            )
        emitted, limits = self._emitted_, self._limits_
        size_bytes = len(body) + len(encoding)
        size_bytes += self._output_bytes_
        if size_bytes > limits[0]:
            raise ValueError(f"a run may emit {limits[0]} bytes (limits.outputBytes)")
        if len(emitted) >= 2 * limits[1] - len(self._called_):
            raise ValueError(f"a run may emit {limits[1]} features (limits.emits)")
        if tensors is not None:
            size_bytes -= len(body)
            body = self._with_tensors_(pieces, tensors, body, size_bytes)
            size_bytes += len(body)
        self._output_bytes_ = size_bytes
        emitted += (body, encoding)

    def _with_tensors_(
        self, pieces: list[bytes], tensors: list[Tensor], body: bytes, others_bytes: int
    ) -> bytes:
        host, max_bytes = self._host_, self._limits_[0]
        if any(tensor._value_ is None for tensor in tensors) and host.may_wait():
            host.wait(len(self._emitted_), pieces, tensors, len(body))
            return body
        host.evaluate(tensors)
        filled = fill(pieces, tensors, max_bytes - others_bytes)
        if filled is None:
            raise ValueError(f"a run may emit {max_bytes} bytes (limits.outputBytes)")
        return filled

    def call_cloud(self, service: str, question: dict[str, Any]) -> str:
        """Call a service of the cloud, if the run succeeds; its reply is an event.

        This method does not wait. The question travels like features, whenever the
        tunnel is up. Its reply calls ``on_reply(ctx, reply)`` of this task on this
        device, once. Without such a function the reply is dropped.

        Args:
            service: A name of the pipeline's ``spec.services``.
            question: JSON values; encoded at once.

        Returns:
            The call's name, equal to ``reply.call``. It is the same when the run
            is repeated, and different for every call of a task and device.

        Raises:
            TypeError: The service is not text, or the question is not a dict of
                JSON values.
            ValueError: The name is empty or too long, the question has NaN,
                infinity or invalid text, or the run exceeds its limit of bytes
                (``limits.outputBytes``) or calls (``limits.emits``).
        """
        if not isinstance(question, dict):
            raise TypeError(f"a question is a dict, not {type(question).__name__}")
        if not isinstance(service, str):
            raise TypeError(f"a service is a name, not {type(service).__name__}")
        name = plain_text(service).encode()
        if not 0 < len(name) <= SERVICE_MAX_BYTES:
            raise ValueError(f"a service's name has 1 to {SERVICE_MAX_BYTES} bytes")
        body = encode_json(question)
        limits = self._limits_
        size_bytes = self._output_bytes_ + len(name) + len(body)
        if size_bytes > limits[0]:
            raise ValueError(f"a run may send {limits[0]} bytes (limits.outputBytes)")
        called = self._called_
        if len(called) + len(self._emitted_) >= 2 * limits[1]:
            raise ValueError(f"a run may call {limits[1]} times (limits.emits)")
        if not called:  # the run's first call
            called = self._called_ = []
            self.log  # noqa: B018 - only runs with a log are checked for calls
        self._output_bytes_ = size_bytes
        called += (name, body)
        return f"{self._position_}.{len(called) // 2}"


def bind_context(
    task: str,
    config: dict[str, Any] | bytes,
    limits: Limits,
    resources: dict[str, bytes],
    host: Deferral,
) -> type[Context]:
    """Make the class of a task's contexts; a config with mutable values comes marshalled."""
    fixed = {
        "__module__": Context.__module__,
        "__slots__": (),
        "task": task,
        "_config_": config,
        "_limits_": limits,
        "_resources_": resources,
        "_host_": host,
    }
    return type("Context", (Context,), fixed)
