"""A device's state of a task, as one run sees it.

Values cross as JSON bytes. A run writes into its own overlay; the session puts
the overlay over the device's state when the run has succeeded and drops it
when it has failed. Later runs of the same device in the batch see what was put,
exactly as they would in a batch of their own.
"""

from typing import Any, Final

from walle_stream.vm.guest.codec import decode_json, encode_json

STATE_KEY_MAX_BYTES: Final = 1_024
"""Longest key of a state entry, in bytes of UTF-8."""


class State:
    """Key-value state of (device, task), kept between runs."""

    __slots__ = ("_base", "_overlay")

    def __init__(self, base: dict[str, bytes], overlay: dict[str, bytes | None]) -> None:
        """Look at a device's state.

        Args:
            base: What earlier runs left; only read.
            overlay: What this run changes; None deletes.
        """
        self._base = base
        self._overlay = overlay

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value, decoded anew at each call: changing it stores nothing.

        Args:
            key: The entry's name.
            default: What to return when there is no such entry.
        """
        overlay = self._overlay
        data = overlay[key] if key in overlay else self._base.get(key)
        return default if data is None else decode_json(data)

    def put(self, key: str, value: Any) -> None:
        """Store a value; what the script does to it later is not stored.

        Args:
            key: The entry's name: 1 to 1,024 bytes of UTF-8.
            value: JSON values.

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
        self._overlay[key] = encode_json(value)

    def delete(self, key: str) -> None:
        """Remove an entry; nothing happens when there is none.

        Args:
            key: The entry's name.
        """
        if key in self:
            self._overlay[key] = None

    def keys(self) -> list[str]:
        """Return the names of all entries, sorted."""
        names = set(self._base)
        for key, data in self._overlay.items():
            if data is None:
                names.discard(key)
            else:
                names.add(key)
        return sorted(names)

    def __contains__(self, key: str) -> bool:
        """Tell whether there is an entry."""
        overlay = self._overlay
        if key in overlay:
            return overlay[key] is not None
        return key in self._base
