"""Numbers on the command line: within bounds, or refused by the parser."""

import argparse
from collections.abc import Callable


def bounded[N: (int, float)](
    kind: type[N], least: N, most: N, what: str = "a number"
) -> Callable[[str], N]:
    """Return the ``type`` of an option; ``int`` takes digits alone."""

    def parse(text: str) -> N:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most or (kind is int and not text.isdecimal()):
            raise argparse.ArgumentTypeError(f"{text!r} is not {what} from {least} to {most}")
        return value

    return parse
