"""A device's state of a task, as one run sees it.

Values cross as JSON bytes. A run writes into its own overlay; the session puts
the overlay over the device's state when the run has succeeded and drops it
when it has failed. Later runs of the same device in the batch see what was put,
exactly as they would in a batch of their own.

Names like ``_base_`` are refused to scripts by the gate (``rules``).
"""

from collections.abc import Callable
from typing import Any, Final, Never

from walle_stream.vm.guest.codec import decode_json, encode_json

STATE_KEY_MAX_BYTES: Final = 1_024
"""Longest key of a state entry, in bytes of UTF-8."""

type Overlay = dict[str, bytes | None]
"""What a run changes: values by key, None for a deleted one."""


def refuse_copy(name: str) -> Callable[[object], Never]:
    """Make a ``__reduce__`` that refuses: a copy would count anew towards the run's limits."""

    def refuse(_: object) -> Never:
        raise TypeError(f"{name} cannot be copied")

    return refuse


class State:
    """Key-value state of (device, task), kept between runs."""

    __slots__ = ("_base_", "_overlay_", "_written_bytes_")

    _written_bytes_: int  # keys and values, also of what was put over later

    def __init__(self, base: dict[str, bytes]) -> None:
        """Look at what earlier runs left; only read."""
        self._base_ = base
        self._overlay_: Overlay | None = None  # made by the first change: many runs only read

    __reduce__ = refuse_copy("ctx.state")

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value or the default; decoded anew at each call: changing it stores nothing."""
        overlay = self._overlay_
        data = overlay[key] if overlay and key in overlay else self._base_.get(key)
        return default if data is None else decode_json(data)

    def put(self, key: str, value: Any) -> None:
        """Store a JSON value; what the script does to it later is not stored.

        A key has 1 to 1,024 bytes of UTF-8.

        Raises:
            TypeError: The key is not text, or the value is not JSON.
            ValueError: The key is empty, too long or not valid Unicode; or
                the value has NaN, infinity or invalid text.
        """
        if type(key) is not str:
            raise TypeError(f"a state key is text, not {type(key).__name__}")
        size_bytes = len(key) if key.isascii() else len(key.encode())
        if not 0 < size_bytes <= STATE_KEY_MAX_BYTES:
            raise ValueError(
                f"a state key has 1 to {STATE_KEY_MAX_BYTES} bytes, this one {size_bytes}"
            )
        data = encode_json(value)
        if self._overlay_ is None:
            self._overlay_ = {key: data}
            self._written_bytes_ = size_bytes + len(data)
        else:
            self._overlay_[key] = data
            self._written_bytes_ += size_bytes + len(data)

    def delete(self, key: str) -> None:
        """Remove an entry; nothing happens when there is none.

        Raises:
            TypeError: The key is not text.
        """
        if type(key) is not str:  # a script's own kind would be asked after the run
            raise TypeError(f"a state key is text, not {type(key).__name__}")
        if key in self:
            if self._overlay_ is None:
                self._overlay_ = {}
                self._written_bytes_ = 0
            self._overlay_[key] = None

    def keys(self) -> list[str]:
        """Return the names of all entries, sorted."""
        names = set(self._base_)
        for key, data in (self._overlay_ or {}).items():
            if data is None:
                names.discard(key)
            else:
                names.add(key)
        return sorted(names)

    def __contains__(self, key: str) -> bool:
        """Tell whether there is an entry."""
        overlay = self._overlay_
        if overlay and key in overlay:
            return overlay[key] is not None
        return key in self._base_


def state_bytes(state: dict[str, bytes]) -> int:
    """Return how large a state is, keys and values together."""
    names = "".join(state)
    names_bytes = len(names) if names.isascii() else len(names.encode())
    return names_bytes + sum(map(len, state.values()))


def merge(state: dict[str, bytes], overlay: Overlay) -> None:
    """Put a run's changes over a state, in place; None deletes a key."""
    if None in overlay.values():
        for key, data in overlay.items():
            if data is None:
                state.pop(key, None)
            else:
                state[key] = data
    else:
        state.update(overlay)  # type: ignore[arg-type] # no None in it


def grown_bytes(state: dict[str, bytes], view: State, held_bytes: int, max_bytes: int) -> int:
    """Refuse a run that lets a state grow beyond its bound.

    ``held_bytes`` is the most that the state has before the run, the result the most after it; -1
    where nobody knows.

    Raises:
        ValueError: It grows beyond the bound; one that shrinks is let through.
    """
    if held_bytes < 0:
        held_bytes = state_bytes(state)
    held_bytes += view._written_bytes_
    if held_bytes <= max_bytes:
        return held_bytes
    merged = state.copy()
    merge(merged, view._overlay_ or {})
    size_bytes = state_bytes(merged)
    if max_bytes < size_bytes and state_bytes(state) < size_bytes:
        raise ValueError(
            f"a device's state may have {max_bytes} bytes, this run leaves {size_bytes} "
            "(limits.stateBytes)"
        )
    return -1
