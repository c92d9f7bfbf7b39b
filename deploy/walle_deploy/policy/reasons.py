"""Why a device gets what it gets, in words: of what ``judging`` found."""

from collections.abc import Iterator
from typing import Any, Final

from walle_deploy.policy.judging import WITHDRAWN, Choice, Verdict
from walle_deploy.policy.truth import Truth

_SYMBOLS: Final[dict[Truth, str]] = {True: "yes", False: "no", None: "not known"}


def why_of(choice: Choice, about: str = "") -> str:
    """Return in a few words why a device gets what it gets.

    ``about`` is a release of the task that may not have been asked.
    """
    verdicts = dict(choice.verdicts)
    parts = [
        f"{name or 'stable version'}: {reason_of(verdict)}"
        for name, verdict in choice.verdicts
        if verdict.truth is not True
    ]
    if WITHDRAWN in verdicts:
        parts.append(verdicts[WITHDRAWN].what)
    if choice.release_id:
        met = "all conditions are met"
        parts.append(f"{choice.release_id}: {met}" if parts else met)
        if about and about not in verdicts:
            parts[-1] += f", and it comes before {about}"
    return "; ".join(parts) or "no release of the task is offered"


def reason_of(verdict: Verdict) -> str:
    """Return in a few words why a device gets a release, or does not."""
    if verdict.truth is True:
        return "all conditions are met"
    # what is false decides, whatever is not known besides
    for truth in (False, None):
        for part in verdict.inner:
            if part.truth is truth:
                why = "is not met" if truth is False else "is not known of it"
                return f"{_described(part)} {why}"
    return "a condition is not met"


def explained(verdict: Verdict, level: int = 0) -> Iterator[str]:
    """Yield a line for each condition: whether it is met, and what the device has."""
    for part in verdict.inner:
        shown = f" (has {part.value})" if part.value else ""
        yield f"{'  ' * level}{_SYMBOLS[part.truth]:<9} {part.what}{shown}"
        yield from explained(part, level + 1)


def as_json(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as plain JSON."""
    plain: dict[str, Any] = {"what": verdict.what, "truth": verdict.truth, "found": verdict.value}
    if verdict.inner:
        plain["inner"] = [as_json(part) for part in verdict.inner]
    return plain


def _described(verdict: Verdict) -> str:
    if not verdict.inner:
        return verdict.what
    if verdict.what == "all" and len(verdict.inner) == 1:
        return _described(verdict.inner[0])
    inner = ", ".join(_described(part) for part in verdict.inner)
    return f"{verdict.what}({inner})"
