"""The parser of arguments: options in any order, and errors in one line with a suggestion."""

import argparse
import re
import sys
from typing import Any, Final, NoReturn, override

from walle_stream.spec.suggestions import nearest

_WORD_MAX: Final = 100
_USAGE_EXIT: Final = 2
_CHOICE: Final = re.compile(r"invalid choice: '([^']*)' \(choose from ([^)]*)\)")


class OneLineParser(argparse.ArgumentParser):
    """Parser that takes options and positionals in any order, and reports errors in one line."""

    _has_commands = False
    _behind: list[str] | None = (
        None  # "--" and the arguments after it, during parse_known_intermixed_args
    )

    @override
    def add_subparsers(self, **kwargs: Any) -> Any:
        self._has_commands = True
        return super().add_subparsers(**kwargs)

    @override
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        # parse_known_args of 3.13 refuses an optional positional after an option
        arguments = list(sys.argv[1:] if args is None else args)
        if self._has_commands:
            return super().parse_known_args(arguments, namespace)
        if self._behind is None:
            self._behind = []
            try:
                found, unknown = self.parse_known_intermixed_args(arguments, namespace)
            finally:
                self._behind = None
            if unknown:  # here, where the help and the options are this command's
                self.error(f"unrecognized arguments: {' '.join(unknown)}{self._meant(unknown)}")
            return found, unknown
        # 3.13.0 calls this again for options, then for positionals, and would lose the "--"
        cut = arguments.index("--") if "--" in arguments else len(arguments)
        behind, self._behind = self._behind, arguments[cut:]
        return super().parse_known_args([*arguments[:cut], *behind], namespace)

    def _meant(self, unknown: list[str]) -> str:
        options = re.findall(r"--[a-z][a-z-]*", self.format_help())
        close = nearest(next((each for each in unknown if each.startswith("--")), ""), options)
        return "" if close is None else f", did you mean {close}?"

    @override
    def error(self, message: str) -> NoReturn:
        wrong = _CHOICE.search(message)
        if wrong is not None:
            close = nearest(wrong[1], re.findall(r"[\w-]+", wrong[2]))
            if close is not None:
                message = f"{message.partition(' (choose')[0]}, did you mean {close!r}?"
        # arguments may have any length and bytes; only --help shows the usage
        words = (
            word if len(word) <= _WORD_MAX else f"{word[:_WORD_MAX]}..."
            for word in message.encode(errors="backslashreplace").decode().split()
        )
        self.exit(_USAGE_EXIT, f"walle: {' '.join(words)}; see {self.prog} --help\n")
