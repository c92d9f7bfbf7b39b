"""The commands of ``walle --help``, grouped by job."""

from typing import Any, Final

GROUPS: Final = {
    "begin": ("demo", "init", "validate", "run"),
    "look": ("status", "features", "ledger", "dead-letters", "state"),
    "events and messages": ("simulate", "partition", "replay", "send", "device"),
    "over Kafka": ("topics", "doctor", "cloud"),
    "on a cluster": ("scale",),
    "tasks and their releases": ("task", "release", "repository", "serve", "fleet", "token"),
    "models": ("engine",),
    "your editor and shell": ("schema", "completion"),
}
"""Commands by job; a command without a group comes last."""


class Commands:
    """Wrapper of the object that ``add_subparsers`` returns, which keeps each command's help."""

    def __init__(self, subparsers: Any) -> None:
        """Wrap ``subparsers``, which then lists no command itself."""
        self._subparsers = subparsers
        self._help: dict[str, str] = {}

    def add_parser(self, name: str, **given: Any) -> Any:
        """Add a command; ``help`` describes it in one line."""
        self._help[name] = given.pop("help", "")
        return self._subparsers.add_parser(name, **given)

    @property
    def choices(self) -> Any:
        """The added commands."""
        return self._subparsers.choices

    def listed(self) -> str:
        """Return a line for each command, by group."""
        rest = set(self._help).difference(*GROUPS.values())
        lines = []
        for title, names in {**GROUPS, "more": tuple(sorted(rest))}.items():
            known = [name for name in names if name in self._help]
            lines += [f"{title}:"] * bool(known)
            lines += [f"  {name:<14}{self._help[name]}" for name in known]
            lines += [""] * bool(known)
        return "\n".join([*lines, "walle COMMAND --help has a command's options."])
