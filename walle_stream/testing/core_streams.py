"""Seeded input streams for cores: the life of a partition as a list of turns.

Devices nest, interleave and re-enter pages. Events are repeated, late, or have numbers that cannot
be stored. Pages time out, tasks are installed, replies arrive, and devices leave memory. The
process crashes before and after commits.
"""

from random import Random
from typing import Any, Final, cast

import msgspec

from walle_stream.events import KINDS, Event, Kind
from walle_stream.stream.commands import REPLY_POSITION, Told
from walle_stream.stream.sequence import SequencePolicy
from walle_stream.stream.task_sets import SetDefinition

DEVICES: Final = ("a", "b", "c", "d", "ä", "device-6")
_EVENTS_MAX: Final = 90
_PAGES: Final = ("p", "q", "home")
_IDS: Final = (*KINDS, "buy", "p")
_TASKS: Final = ("visit", "funnel", "click", "third")


class Turn(msgspec.Struct):
    """Input until a commit, and the fate of the process."""

    batches: list[list[Event]]
    replies: list[Told]
    installs: list[tuple[str, str]]
    """Pairs of a device and the id of a task set."""
    is_end: bool
    """Whether the source ends after the last batch."""
    keep: int
    """Number of devices that stay in memory."""
    horizon: int
    """Number of batches for which a device may stay dirty."""
    dies_before: bool
    """Whether the process crashes before the commit, and then repeats the turn."""
    dies_behind: bool


class Life(msgspec.Struct):
    """One partition from its beginning."""

    sets: dict[str, SetDefinition]
    """Task sets by id: the definition's set has the id ``""``, others can be installed."""
    turns: list[Turn]


def made_life(seed: int) -> Life:
    """Return the life of a seed.

    Args:
        seed: Any number; equal seeds give equal lives that share no objects.
    """
    random = Random(seed)  # noqa: S311 - no secret
    policy = SequencePolicy(
        random.choice((None, 2, 40, 300)),
        random.choice((0, 0, 3, 50)),
        random.choice((1, 3, 10_000)),
        random.choice((None, None, frozenset(), frozenset({"item"}))),
    )
    sets = {name: _definition(random, policy, name) for name in ("", "s1", "s2")}
    events = _events(random, random.randrange(_EVENTS_MAX))
    turns, calls = list[Turn](), 0
    while events or not turns:
        batches = []
        for _ in range(random.randrange(1, 4)):
            count = random.choice((0, 1, 3, 20))
            batches.append(events[:count])
            del events[:count]
        calls += 1
        turns.append(
            Turn(
                batches,
                [_reply(random, calls)] * random.choice((0, 0, 0, 1)),
                [(random.choice(DEVICES), random.choice(sorted(sets)))] * random.choice((0, 0, 1)),
                not events,
                random.choice((0, 2, 100)),
                random.choice((0, 1, 3, 100)),
                random.random() < 0.1,  # noqa: PLR2004 - seldom
                random.random() < 0.2,  # noqa: PLR2004 - sometimes
            )
        )
    return Life(sets, turns)


def _definition(random: Random, policy: SequencePolicy, suffix: str) -> SetDefinition:
    ids = random.choice((KINDS, (*_IDS, *_PAGES)))
    tasks = random.sample(_TASKS, random.randrange(1, len(_TASKS) + 1))
    triggers = {
        task: tuple(
            tuple(random.choices(ids, k=random.choice((1, 1, 2, 3))))
            for _ in range(random.choice((1, 1, 2)))
        )
        for task in tasks
    }
    limited = [task for task in tasks if random.random() < 0.2]  # noqa: PLR2004 - seldom
    own_pages = {task: frozenset(random.sample(_PAGES, 2)) for task in limited}
    programs = {task: f"{task}@{suffix}" for task in tasks if suffix}
    return SetDefinition(triggers, policy, own_pages, programs)


def _events(random: Random, count: int) -> list[Event]:
    now_ms, made = 1_000, list[Event]()
    steps, lags = random.choice(((0, 1), (0, 0, 1, 3, 40))), random.choice(((0,), (0, 0, 2, 9)))
    devices = random.sample(DEVICES, random.randrange(1, len(DEVICES) + 1))
    kinds = random.choice(((*KINDS, "page_enter", "click"), ("page_enter", *["click"] * 9)))
    pages, instances = random.choice((_PAGES, ("p",))), random.choice((("", "1", "2"), ("1",)))
    for _ in range(count):
        now_ms += random.choice(steps)
        kind = cast("Kind", random.choice(kinds))
        id_ = kind if random.random() < 0.8 else random.choice(_IDS)  # noqa: PLR2004 - mostly
        uid = random.choice(("", "", f"u{random.randrange(20)}"))
        made.append(
            Event(
                random.choice(devices),
                id_,
                kind,
                random.choice(pages),
                random.choice(instances),
                now_ms - random.choice(lags),
                now_ms,
                _contents(random),
                uid,
            )
        )
    return made


def _contents(random: Random) -> dict[str, Any]:
    return random.choice(
        (
            {},
            {"item": random.randrange(3), "price": 0.5},
            {"item": ["x", {"y": None}], "other": "z"},
            {"other": True},
            {"item": 2**63 if random.random() < 0.5 else 2**70},  # noqa: PLR2004 - some fit
        )
    )


def _reply(random: Random, number: int) -> Told:
    task = random.choice(_TASKS)
    given = ["1.1", "service", "", b"{}"]
    return Told(random.choice(DEVICES), task, REPLY_POSITION + number, given)
