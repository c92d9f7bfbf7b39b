"""``${VAR}`` and ``${VAR:-default}`` in scalars of a definition.

As in a shell, the default replaces a missing or empty variable. ``$$`` is a
dollar. Place in the data flow: ``nodes`` calls this module for every scalar with
a dollar.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

_VARIABLE: Final = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{")


class Substitution(NamedTuple):
    """A scalar after substitution."""

    text: str
    is_whole: bool
    """Whether the scalar was one ``${...}`` and nothing else."""
    secrets: tuple[str, ...]
    """Values from the environment."""


def substitute(text: str, environ: Mapping[str, str]) -> Substitution:
    """Replace the variables in a scalar.

    Raises:
        ValueError: A variable is missing and has no default, or is malformed.
    """
    secrets: list[str] = []

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        name, default = match[1], match[2]
        if default is not None and "${" in default:
            raise ValueError("a default cannot be another ${...}: write its value")
        if name is None:
            raise ValueError("expected ${NAME} or ${NAME:-default}; write $$ for a dollar")
        value = environ.get(name)
        if value:
            secrets.append(value)
            return value
        if default is not None:
            return str(default)
        if value is None:
            raise ValueError(
                f"the environment has no {name}: set it, or write ${{{name}:-default}}"
            )
        return ""

    replaced = _VARIABLE.sub(replace, text)
    whole = _VARIABLE.fullmatch(text)
    return Substitution(replaced, whole is not None and whole[1] is not None, tuple(secrets))
