"""What both halves of the peers' benchmark can be told."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


def peers_parser(names: Sequence[str], kept: str, **given: str | None) -> argparse.ArgumentParser:
    """Return a parser of what both halves know.

    Args:
        names: Of the contenders.
        kept: Where the result is kept unless told.
        **given: Of the parser.
    """
    parser = argparse.ArgumentParser(**given)  # type: ignore[arg-type]
    parser.add_argument("--kafka", action="store_true", help="over a broker: --kafka --help")
    parser.add_argument("--rounds", type=int, help="how often everyone runs (5)")
    parser.add_argument("--devices", type=int, help="visitors of the shop (1,000)")
    parser.add_argument("--sessions", type=int, help="visits of each (3, some 186,000 events)")
    parser.add_argument("--seed", type=int, default=2022)
    parser.add_argument("--contenders", nargs="+", choices=names, default=names)
    parser.add_argument("--quick", action="store_true", help="a small shop, one round")
    parser.add_argument("--trial", action="store_true", help="say that the machine was not quiet")
    parser.add_argument("--installed", action="store_true", help="install nothing")
    parser.add_argument("--environments", type=Path, default=ROOT / ".venv-peers")
    parser.add_argument("--json", type=Path, help=kept)
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse, and fill in what depends on ``--quick``.

    Args:
        parser: Of ``peers_parser``.
    """
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.devices = options.devices or (50 if options.quick else 1_000)
    options.sessions = options.sessions or (1 if options.quick else 3)
    if min(options.rounds, options.devices, options.sessions) < 1:
        parser.error("--rounds, --devices and --sessions must be at least 1")
    return options
