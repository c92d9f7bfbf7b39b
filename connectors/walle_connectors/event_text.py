"""What may be wrong with the JSON of an event, for all connectors that decode it."""

from typing import Final

import msgspec

from walle_stream.ports import DeadLetterRoute
from walle_stream.types import TIME_MAX_MS

# the last for what is nested deeper than the decoder goes
DECODE_ERRORS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding an event from bytes of anybody may raise."""

BAD_TIME: Final = f"a time is outside 0 .. {TIME_MAX_MS} milliseconds"
"""Why an event is refused whose time cannot be one."""

_BOUNDS: Final = ("`int` >= ", "`int` <= ")  # what the decoder says of a time


def decode_problem(error: Exception) -> tuple[DeadLetterRoute, str, str]:
    """Say what a failed decoding means.

    Args:
        error: One of ``DECODE_ERRORS``.

    Returns:
        Route, reason and class of the error (empty where the reason is all there is to it).
    """
    if any(words in str(error) for words in _BOUNDS):
        return "invalid", BAD_TIME, ""
    return "decode", f"is no event: {error}", type(error).__name__
