"""Migration of states with an older layout, when a run first needs them.

A task declares the layout of its states (``spec.stateVersion``). A state of another
layout goes through the script's ``migrate(old)`` within the run that needs it. The
returned state is kept if the run succeeds. The layout's number is stored beside the
state's entries, under a key that no script can use. A state without a number has
layout 1.
"""

from collections.abc import Callable
from typing import Any, Final

from walle_stream.vm.guest.state import State

VERSION_KEY: Final = ""
"""Key of the layout's number; a script's keys have at least one byte."""


class OldState(dict[str, Any]):
    """The argument of ``migrate``: the entries of a state by key."""

    version: int
    """Layout of the state."""


def take_version(state: dict[str, bytes]) -> int:
    """Remove and return the layout's number of a device's state; 1 if it has none."""
    data = state.pop(VERSION_KEY, None)
    return 1 if data is None else int(data)


def migrate(
    state: State, function: Callable[[OldState], Any] | None, version: int, old_version: int
) -> None:
    """Replace a state with the result of the script's ``migrate``.

    Raises:
        TypeError: The script has no ``migrate``, or it did not return a dict.
        ValueError: The state has a later layout, because the task went back.
    """
    if version < old_version:
        raise ValueError(
            f"a state of version {old_version} was left by a later version of this task, whose "
            f"stateVersion is {version}: install the later version again, or delete the state"
        )
    if function is None:
        raise TypeError(
            f"stateVersion {version} needs def migrate(old), because there are older states"
        )
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
