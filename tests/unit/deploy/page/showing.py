"""Releases with a history of hours for pages, and a client of the ASGI application."""

import asyncio
from contextlib import contextmanager
from html.parser import HTMLParser
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.applications import Starlette

from tests.unit.deploy.hasty import hasty
from tests.unit.deploy.monitoring.reporting import Clocked
from walle_deploy.model.health import LEVELS
from walle_deploy.model.releases import VersionFiles
from walle_deploy.monitoring.attribution import group_scope
from walle_deploy.monitoring.counts import WindowCounts, encode_counts
from walle_deploy.monitoring.reader import HealthReader
from walle_deploy.operators.operator import Operator
from walle_deploy.page.app import page_routes
from walle_deploy.release.commands import ReleaseCommands
from walle_deploy.release.controller import Controller
from walle_deploy.release.model import Release
from walle_deploy.store.rows import CountedWindow, Scope
from walle_deploy.store.sqlite import SqliteStore
from walle_stream.errors import IdentityError
from walle_stream.wire.buckets import bucket_of

TASK, MINUTE = "shop/ipv", 60_000


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str

    def parsed(self) -> "Parsed":
        parsed = Parsed()
        parsed.feed(self.text)
        return parsed


class Parsed(HTMLParser):
    """What a browser makes of a page: elements, their attributes and texts."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, Any]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def of(self, *names: str) -> list[dict[str, Any]]:
        return [given for name, given in self.elements if name in names]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


PEOPLE = {
    b"Bearer good": Operator("ann", "approver"),
    b"Bearer look": Operator("vic", "viewer"),
}
HOST = {"host": "walle.test"}
OWN = {**HOST, "origin": "http://walle.test"}
GATES = {"failures": {"tolerated": 0.001}, "latency": {"enabled": False}}


@contextmanager
def opened(path):
    store = SqliteStore(path)
    yield Clocked(store, 1_900_000_020_000)
    store.close()


def definition(name, version="v2", task=TASK, **spec):
    given = {"apiVersion": "walle/v1", "kind": "Release", "metadata": {"name": name}}
    return Release.model_validate(
        {**given, "spec": hasty({"task": task, "version": version, **spec})}
    )


def published(store, *versions, task=TASK):
    commands = ReleaseCommands(store, "ann")
    for version in versions:
        commands.publish(task, version, VersionFiles(()))
    commands.adopt(task, versions[0], "they have it")
    return commands


def write_minute(
    store, devices, number, failures=0, release="r", versions=("v1", "v2"), classes=None
):
    """Count what both groups did in one minute: devices as (control, new), which ran 10 times."""
    classes = classes or {"KeyError": failures}
    with store.counting() as counting:
        number, step = counting.begin_window(number * MINUTE), counting.release(release).offer
        for group, version, count in zip(("control", "new"), versions, devices, strict=True):
            failed = classes if group == "new" else dict.fromkeys(classes, 0) | {"Timeout": 1}
            total, runs = sum(failed.values()), count * 10
            zeros = [0] * (len(LEVELS) - 1)
            buckets = {bucket_of(1_000): runs}
            counts = WindowCounts(
                runs,
                total,
                failed,
                buckets,
                {bucket_of(100): runs},
                [count] * len(LEVELS),
                [total, *zeros],
                [count] * len(LEVELS),
                [0, *zeros],
            )
            for scope in (group_scope(TASK, release, group), Scope(TASK, version, release)):
                stored = counting.scopes([scope]).get(scope) or counting.make_scope(scope, 1, 0)
                if step and stored.step_ms != step.step_ms:
                    counting.put_edges(stored._replace(step_ms=step.step_ms, step_from=number))
                left = count  # those that reported last before report last here now
                for each in counting.windows(stored.id, 0)[::-1]:
                    gone = min(each.seen, left)
                    left -= gone
                    counting.move_devices({(stored.id, each.number): (-gone, 0, 0)})
                window = CountedWindow(
                    number, count, total, 0, number * MINUTE, encode_counts(counts)
                )
                counting.put_window(stored.id, window)


def lived(store, step_minutes=12, failures=0, upto=5, why="more views of pages"):
    """A release with a history: devices report each minute, and the product's controller looks."""
    commands = published(store, "v1", "v2")
    steps = [{"percent": each, "minDuration": f"{step_minutes}m"} for each in (1, 5, 20, 50, 100)]
    commands.create(definition("r", gray=steps, gates=GATES), why)
    controller = Controller(store, HealthReader(store), None, 10_000)
    share = 0.0
    for _ in range(step_minutes * upto):
        controller.turn()
        with store.reading() as reading:
            stored = reading.release("r")
        if not stored.is_open:
            break
        share += ((stored.offer.percent if stored.offer else 0) / 100 - share) / 3
        new = round(10_000 * share)
        write_minute(store, (10_000 - new, new), store.now // MINUTE, failures)
        store.now += MINUTE
    controller.turn()
    controller.close()
    return commands


async def prove(headers, _client):
    given = dict(headers).get(b"authorization", b"")
    if given not in PEOPLE:
        raise IdentityError("no token: expected one in the header authorization")
    return PEOPLE[given]


def stop(store):
    def stop(operator, name, action, why, revision):
        commands = ReleaseCommands(store, operator.name)
        (commands.pause if action == "pause" else commands.roll_back)(name, why, revision)

    return stop


def application(store, operator_of=prove):
    return Starlette(routes=page_routes(store, operator_of, stop(store)))


def ask(app, path, who="good", form=None, **headers):
    """Ask once; ``who`` is the token of the cookie, and a form makes it a POST."""
    name, _, query = path.partition("?")
    given = {
        **(HOST if form is None else OWN),
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }
    if who:
        given["cookie"] = f"walle_operator={who}"
    body = b"" if form is None else urlencode(form).encode()
    scope = {
        "type": "http",
        "method": "GET" if form is None else "POST",
        "path": name,
        "raw_path": name.encode(),
        "query_string": query.encode(),
        "headers": [(k.encode(), v.encode("latin-1")) for k, v in given.items()],
        "client": ("127.0.0.1", 5),
        "server": ("walle.test", 80),
        "scheme": "http",
    }
    sent, messages = [], [{"type": "http.request", "body": body}]

    async def receive():
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    found = {k.decode(): v.decode("latin-1") for k, v in sent[0]["headers"]}
    text = b"".join(each.get("body", b"") for each in sent[1:]).decode()
    return Answer(sent[0]["status"], found, text)
