"""States of an older layout: found when a run first touches them, and made anew.

A task says which layout its states have (``spec.stateVersion``). A state that
was left by another one goes through the script's ``migrate(old)`` before the
run that needs it, within that run: what it returns is kept if the run succeeds.
The layout's number lies beside the state's entries under a key that no script
can use; a state without it has layout 1.
"""

from collections.abc import Callable
from typing import Any, Final

from walle_stream.vm.guest.state import State

VERSION_KEY: Final = ""
"""Where a layout's number lies; a script's keys have at least one byte."""


class OldState(dict[str, Any]):
    """What ``migrate`` is given: the entries of a state by key."""

    version: int
    """Its layout."""


def take_version(state: dict[str, bytes]) -> int:
    """Take the layout's number out of a device's state; 1 where none is written."""
    data = state.pop(VERSION_KEY, None)
    return 1 if data is None else int(data)


def migrate(
    state: State, function: Callable[[OldState], Any] | None, version: int, old_version: int
) -> None:
    """Replace a state by what the script makes of it.

    Raises:
        TypeError: The script has no ``migrate``, or it returned no dict.
        ValueError: The state has a later layout: the task went back.
    """
    if version < old_version:
        raise ValueError(
            f"a state of version {old_version} was left by a later version of this task, whose "
            f"stateVersion is {version}: go back to that one, or delete the state"
        )
    if function is None:
        raise TypeError(f"stateVersion {version} needs def migrate(old): there are older states")
    keys = state.keys()
    old = OldState({key: state.get(key) for key in keys})
    old.version = old_version
    new = function(old)
    if not isinstance(new, dict):
        raise TypeError(f"migrate returns the new state as a dict, not {type(new).__name__}")
    for key in keys:
        if key not in new:
            state.delete(key)
    for key, value in new.items():
        state.put(key, value)
