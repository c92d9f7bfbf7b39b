"""What may be wrong with the JSON of an event, for all connectors that decode it."""

from typing import Final

import msgspec

from walle_stream.ports import DeadLetterRoute

# the last for what is nested deeper than the decoder goes
DECODE_ERRORS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding an event from bytes of anybody may raise."""

_BELOW_ZERO: Final = "`int` >= 0"  # what the decoder says of a time


def decode_problem(error: Exception) -> tuple[DeadLetterRoute, str, str]:
    """Say what a failed decoding means.

    Args:
        error: One of ``DECODE_ERRORS``.

    Returns:
        Route, reason and class of the error (empty where the reason is all there is to it).
    """
    if _BELOW_ZERO in str(error):
        return "invalid", "a time lies before 1970", ""
    return "decode", f"is no event: {error}", type(error).__name__
