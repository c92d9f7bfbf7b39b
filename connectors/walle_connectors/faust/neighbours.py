"""The other workers of a group: at which addresses they say they are, and what they answer.

An address proves nothing: two workers may give the same, or one of their own machine, where
another's worker answers. So who is asked says which partitions he has, and only to his own group.
"""

import asyncio
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec
from aiohttp import ClientError, ClientTimeout
from yarl import URL

ASKED_HEADER: Final = "X-Walle-Forwarded"
"""On a request of another worker: its group."""

_OTHER_S: Final = 5.0


class Without(msgspec.Struct):
    """What a worker answers another that asks for a device which it does not have."""

    error: str
    partitions: list[int]
    """Those that it has."""


class Answers(NamedTuple):
    """What the others said of a device."""

    found: bytes | None
    """A row, as JSON."""
    partitions: set[int]
    """Of those that do not have it."""
    silent: list[str]
    """Addresses at which no worker of the group answered."""


async def ask_others(app: Any, device: str, query: str) -> Answers:
    """Ask all other workers for a device."""
    others = other_addresses(app.conf.canonical_url, list(app.router.tables_metadata()))
    said = await asyncio.gather(*(_ask(app, other, device, query) for other in others))
    partitions: set[int] = set()
    silent = []
    for other, each in zip(others, said, strict=True):
        if isinstance(each, bytes):
            return Answers(each, set(), [])
        if each is None:
            silent.append(str(other))
        else:
            partitions.update(each.partitions)
    return Answers(None, partitions, silent)


def other_addresses(mine: URL, found: Sequence[str]) -> list[URL]:
    """Return where other workers are."""
    urls = {URL(address) for address in found}
    return sorted(each for each in urls if (each.host, each.port) != (mine.host, mine.port))


def address_problems(
    mine: URL, found: Mapping[str, Mapping[str, Sequence[int]]], topic: str, partitions: int
) -> list[str]:
    """Say what is wrong with the addresses of a group's workers.

    Args:
        mine: Where this one is.
        found: By address, the partitions that a worker has, by topic; of one address the last.
        topic: Whose partitions tell.
        partitions: How many it has.
    """
    problems = []
    told = {number for each in found.values() for number in each.get(topic, ())}
    if len(told) < partitions:
        problems.append(
            f"two workers say that they are at the same address (all: {', '.join(sorted(found))}): "
            "what only one of them has is answered 503; give each its own --advertise HOST:PORT"
        )
    problems += [
        f"a worker says that it is at {other}, where only its own machine finds it: look-ups are "
        "answered 503; start it with --advertise HOST:PORT"
        for other in other_addresses(mine, list(found))
        if _is_local(other) and not _is_loopback(mine)
    ]
    return problems


async def _ask(app: Any, other: URL, device: str, query: str) -> bytes | Without | None:
    address = URL(
        f"{str(other).rstrip('/')}/features/{quote(device, safe='')}?{query}", encoded=True
    )
    try:
        async with app.http_client.get(
            address, headers={ASKED_HEADER: app.conf.id}, timeout=ClientTimeout(total=_OTHER_S)
        ) as response:
            body: bytes = await response.read()
            if response.status == 200:  # noqa: PLR2004 - HTTP
                return body
            return msgspec.json.decode(body, type=Without) if response.status == 404 else None  # noqa: PLR2004 - HTTP
    except (ClientError, TimeoutError, OSError, msgspec.MsgspecError):
        return None


def _is_local(url: URL) -> bool:
    return _is_loopback(url) or (url.host or "") in {"0.0.0.0", "::"}  # noqa: S104 - nobody listens


def _is_loopback(url: URL) -> bool:
    try:
        return ip_address(url.host or "").is_loopback
    except ValueError:
        return url.host == "localhost"
