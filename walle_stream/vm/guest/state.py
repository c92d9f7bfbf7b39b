"""A device's state of a task, as one run sees it.

Values cross as JSON bytes. A run writes into its own overlay. The session merges
the overlay into the device's state if the run succeeds, and drops it if the run
fails. Later runs of the same device in the batch see the merged state, exactly as
in a batch of their own.

The gate refuses names like ``_base_`` to scripts (``rules``).
"""

from collections.abc import Callable
from typing import Any, Final, Never

from walle_stream.vm.guest.codec import decode_json, encode_json

STATE_KEY_MAX_BYTES: Final = 1_024
"""Longest key of a state entry, in bytes of UTF-8."""

type Overlay = dict[str, bytes | None]
"""Changes of a run: values by key, None for a deleted one."""


def refuse_copy(name: str) -> Callable[[object], Never]:
    """Make a ``__reduce__`` that refuses, because a copy would count limits from zero again."""

    def refuse(_: object) -> Never:
        raise TypeError(f"{name} cannot be copied")

    return refuse


class State:
    """Key-value state of (device, task), kept between runs."""

    __slots__ = ("_base_", "_overlay_", "_written_bytes_")

    _written_bytes_: int  # keys and values, overwritten ones included

    def __init__(self, base: dict[str, bytes]) -> None:
        """Wrap the state that earlier runs left; ``base`` is only read."""
        self._base_ = base
        self._overlay_: Overlay | None = None  # made at the first change; many runs only read

    __reduce__ = refuse_copy("ctx.state")

    def get(self, key: str, default: Any = None) -> Any:
        """Return a new copy of a value, or the default; changing the copy stores nothing."""
        overlay = self._overlay_
        data = overlay[key] if overlay and key in overlay else self._base_.get(key)
        return default if data is None else decode_json(data)

    def put(self, key: str, value: Any) -> None:
        """Store a JSON value; later changes of the object are not stored.

        A key has 1 to 1,024 bytes of UTF-8.

        Raises:
            TypeError: The key is not text, or the value is not JSON.
            ValueError: The key is empty, too long or not valid Unicode, or
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
        """Remove an entry; do nothing if it is missing.

        Raises:
            TypeError: The key is not text.
        """
        if type(key) is not str:  # a script's own subclass would be called after the run
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
        """Return whether the state has an entry."""
        overlay = self._overlay_
        if overlay and key in overlay:
            return overlay[key] is not None
        return key in self._base_


def state_bytes(state: dict[str, bytes]) -> int:
    """Return the bytes of a state, keys and values together."""
    names = "".join(state)
    names_bytes = len(names) if names.isascii() else len(names.encode())
    return names_bytes + sum(map(len, state.values()))


def merge(state: dict[str, bytes], overlay: Overlay) -> None:
    """Merge a run's changes into a state, in place; None deletes a key."""
    if None in overlay.values():
        for key, data in overlay.items():
            if data is None:
                state.pop(key, None)
            else:
                state[key] = data
    else:
        state.update(overlay)  # type: ignore[arg-type] # no None in it


def grown_bytes(state: dict[str, bytes], view: State, held_bytes: int, max_bytes: int) -> int:
    """Refuse a run that makes a state grow beyond its bound.

    ``held_bytes`` is an upper bound of the state's size before the run, and the result is one
    after it; -1 means unknown.

    Raises:
        ValueError: The state grows beyond the bound; a state that shrinks may stay above it.
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
