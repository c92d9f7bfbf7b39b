"""``python -m walle_stream.testing.link``: a link with commands on standard input.

Exit codes: 0 ended by ``quit``, the end of the input or a signal, 2 wrong usage.
"""

import argparse
import sys

from walle_stream.errors import LinkAddressError
from walle_stream.spec.scalars import parse_duration_ms, parse_size_bytes
from walle_stream.testing.link.relay import Address, Link
from walle_stream.testing.link.shape import DOWN, UP, Direction, LinkShape

_HELP = (
    "stall|cut|heal [up|down], reset, delay|jitter 25ms, rate 1MiB, show, quit; end of input quits"
)


def main() -> int:
    """Run a link until its end and return the exit code."""
    options = _parser().parse_args()
    try:
        link = Link(options.to, options.listen, options.seed)
    except LinkAddressError as error:
        print(f"link: {error}", file=sys.stderr)
        return error.exit_code
    shape = LinkShape(
        delay_ms=options.delay,
        jitter_ms=options.jitter,
        bytes_per_s=options.rate,
        loss_ratio=options.loss,
    )
    with link:
        link.shape(shape)
        host, port = link.address
        print(f"link: {host}:{port} -> {options.to[0]}:{options.to[1]}; {_HELP}", flush=True)
        try:
            for line in sys.stdin:
                words = line.split()
                if words == ["quit"]:
                    break
                shape = _obey(link, shape, words)
        except KeyboardInterrupt:
            pass
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m walle_stream.testing.link",
        description="forward TCP with delay, cuts and resets; commands on standard input: " + _HELP,
    )
    parser.add_argument("--listen", type=_address, default=("127.0.0.1", 0), metavar="HOST:PORT")
    parser.add_argument("--to", type=_address, required=True, metavar="HOST:PORT")
    parser.add_argument("--delay", type=_duration, default=0, help="each way, like 25ms")
    parser.add_argument("--jitter", type=_duration, default=0, help="largest extra delay")
    parser.add_argument("--rate", type=_size, default=0, help="bytes per second, like 1MiB")
    parser.add_argument(
        "--loss", type=_share, default=0.0, help="share of lost segments, like 0.01"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of jitter and loss")
    return parser


def _obey(link: Link, shape: LinkShape, words: list[str]) -> LinkShape:
    match words:
        case []:
            pass
        case ["stall" | "cut" | "heal" as fault, *way] if way in ([], ["up"], ["down"]):
            getattr(link, fault)(Direction(way[0]) if way else None)
        case ["reset"]:
            link.reset()
        case ["delay" | "jitter" | "rate" as key, text]:
            try:
                shape = _changed(shape, key, text)
            except ValueError as error:
                print(f"link: {error}", flush=True)
                return shape
            link.shape(shape)
        case ["show"]:
            pass
        case _:
            print(f"link: expected {_HELP}", flush=True)
            return shape
    if words:
        print(_state(link), flush=True)
    return shape


def _changed(shape: LinkShape, key: str, text: str) -> LinkShape:
    values = {name: getattr(shape, name) for name in shape.__struct_fields__}
    name = "bytes_per_s" if key == "rate" else f"{key}_ms"
    return LinkShape(**{**values, name: _size(text) if key == "rate" else parse_duration_ms(text)})


def _state(link: Link) -> str:
    ways = ", ".join(
        f"{way.value} {link.delivered_bytes(way)} bytes delivered, {link.lost_bytes(way)} lost"
        for way in (UP, DOWN)
    )
    return f"link: {link.connection_count} of {link.accepted_count} connections, {ways}"


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:  # noqa: PLR2004 - of TCP
        raise argparse.ArgumentTypeError(f"expected HOST:PORT, found {text!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _duration(text: str) -> int:
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0.0 <= share < 1.0:
        raise argparse.ArgumentTypeError(f"expected a share below 1, found {text!r}")
    return share


def _size(text: str) -> int:
    return parse_size_bytes(int(text) if text.isdecimal() else text)


if __name__ == "__main__":
    raise SystemExit(main())
