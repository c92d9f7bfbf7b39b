"""What a run can do: the ``ctx`` of ``run(ctx, page)``.

Made anew for every run and dropped with it. Names like ``_emitted_`` are refused
to scripts by the gate (``rules``).
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
"""Longest encoding: its length travels in 16 bits."""

SERVICE_MAX_BYTES: Final = 200
_NO_CALLS: Final[list[bytes]] = []
"""Of a run that made none; only read."""

type Limits = tuple[int, int, int, int, int, int, int]
"""Bounds of one run: output bytes, emits, log lines, wall time in milliseconds;
how many stopped runs quarantine a device's task; steps (0 for any number) and
bytes of a device's state."""


def plain_text(text: str) -> str:
    """Return a text as a plain ``str``: a script's own kind could lie about itself."""
    return "".join((text,))  # noqa: FLY002 - an f-string asks the text for its format


def _plain_bytes(encoding: object) -> bytes:
    if not isinstance(encoding, (bytes, bytearray, memoryview)):
        raise TypeError(f"an encoding is bytes, not {type(encoding).__name__}")
    return b"".join((encoding,))  # a script's own kind of bytes could lie


class Clock:
    """Event time."""

    __slots__ = ("_now_ms_",)

    def __init__(self, now_ms: int) -> None:
        """Stop the clock at an event time, epoch milliseconds."""
        self._now_ms_ = now_ms

    def now_ms(self) -> int:
        """Return the event time of the waking event, epoch milliseconds."""
        return self._now_ms_


class Log:
    """Lines for the operator; kept even when the run fails."""

    __slots__ = ("_dropped_count_", "_lines_", "_max_lines_")

    def __init__(self, max_lines: int) -> None:
        """Start empty; of more lines only their number is kept."""
        self._max_lines_ = max_lines
        self._lines_: list[tuple[int, str]] = []
        self._dropped_count_ = 0

    __reduce__ = refuse_copy("ctx.log")

    def info(self, text: object, *values: object) -> None:
        """Log a line; values are put into the text by ``%``, as ``logging`` does."""
        self._add_(0, text, values)

    def warning(self, text: object, *values: object) -> None:
        """Log a line that someone should see, as ``info`` does."""
        self._add_(1, text, values)

    def error(self, text: object, *values: object) -> None:
        """Log a line about a failure, as ``info`` does."""
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
        # the lines so far with their level codes; for the session
        lines = self._lines_
        if self._dropped_count_:
            return [*lines, (1, f"{self._dropped_count_} more lines were dropped")]
        return lines


class Context:
    """One run's access to its device, its task and its output.

    ``bind_context`` makes the class that a VM uses: what is the same in all
    runs of a task stands in the class, so that making one for a run is cheap.
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
    # made by the run's first look
    _made_config_: dict[str, Any]
    _random_: Random

    def __init__(self, device_id: str, position: int, clock_ms: int, state: State) -> None:
        """Begin a run: whose event woke the task, which of the device's it was, and when."""
        self.device_id = device_id
        """The device whose event woke the task."""
        self.state = state
        """What the task keeps for this device between runs."""
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
        """The task's config; a fresh copy per run, changing it changes nothing else."""
        try:
            return self._made_config_
        except AttributeError:  # the run's first look
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
        """Event time: the only clock of a guest."""
        return Clock(self._clock_ms_)

    @property
    def random(self) -> Random:
        """Random numbers, the same when the run is repeated.

        Seeded by device, task and trigger position.
        """
        try:
            return self._random_
        except AttributeError:  # the run's first look
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
        """Make a tensor; operators and methods on it compute nothing until asked.

        Args:
            values: A number, nested lists of numbers, or elements as bytes
                (little-endian, row-major).
            dtype: ``float32``, ``float64``, ``int32``, ``int64`` or ``uint8``;
                when left out float32, int64 for whole numbers.
            shape: Given with bytes; else what the lists say.

        Raises:
            TypeError: Something else than numbers.
            ValueError: Lists of different lengths, an unknown dtype, or a shape
                that does not fit.
        """
        return make_tensor(self._host_, values, dtype, shape)

    def concat(self, tensors: Iterable[Tensor], axis: int = 0) -> Tensor:
        """Put tensors, at least one, one behind the other along a dimension."""
        return concatenate(self._host_, tensors, axis)

    def run_model(self, model: str, *inputs: object, output: int = 0) -> Tensor:
        """Run a model that the host holds, as part of a tensor expression.

        Computes nothing until asked; a model whose outputs are asked for in one
        crossing runs once.

        Args:
            model: A name of the pipeline's ``spec.models``.
            *inputs: Tensors, or what ``tensor`` takes.
            output: Which of the model's outputs, from 0.

        Raises:
            TypeError: An input is no tensor and no numbers, or the name no text.
        """
        if not isinstance(model, str):
            raise TypeError(f"a model's name is text, not {type(model).__name__}")
        return run_model(self._host_, plain_text(model), inputs, output)

    def evaluate(self, *tensors: Tensor) -> None:
        """Let the host compute tensors, all in one crossing.

        ``tolist``, ``item``, ``tobytes``, ``shape`` and ``dtype`` do it by
        themselves for one. The time it takes does not count as the run's.

        Raises:
            RuntimeError: The host refused: shapes do not fit, or it is too much.
        """
        self._host_.evaluate(tensors)

    def emit(self, feature: dict[str, Any], encoding: bytes | None = None) -> None:
        """Send a feature to the cloud, if the run succeeds.

        Encoded at once: what the script does to it later is not sent. A tensor in it
        stands for what its ``tolist`` gives; tensors of all runs of a batch are
        evaluated together, in one crossing, when the last run is done. Where that
        fails, it fails here.

        Args:
            feature: JSON values and tensors; written compactly, keys in insertion
                order.
            encoding: A short binary form to travel beside the feature.

        Raises:
            TypeError: The feature is not a dict of JSON values, or the
                encoding is not bytes.
            RuntimeError: The host refused to compute a tensor.
            ValueError: NaN or infinity, invalid text, an encoding longer than
                ``ENCODING_MAX_BYTES``, or more bytes or features than the
                task's limits allow in one run.
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
            body = b"0".join(pieces)  # as much as it has at least
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
        """Ask a service of the cloud, if the run succeeds; the answer is an event.

        Nothing is waited for: the question travels as features do, whenever the
        tunnel is up, and its answer comes as ``on_reply(ctx, reply)`` of this
        task on this device, once. Without such a function it is dropped.

        Args:
            service: A name of the pipeline's ``spec.services``.
            question: JSON values; encoded at once.

        Returns:
            The call's name, as ``reply.call`` will say it: the same when the
            run is repeated, another one for every call of a task and device.

        Raises:
            TypeError: The service is no text, or the question no dict of JSON
                values.
            ValueError: An empty or very long name, NaN or infinity, invalid
                text, or more bytes (``limits.outputBytes``) or calls
                (``limits.emits``) than the task may send in one run.
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
            self.log  # noqa: B018 - a run with a log is looked at for calls, others are not
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
    """Make the class of a task's contexts; a config with values that can change is marshalled."""
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
