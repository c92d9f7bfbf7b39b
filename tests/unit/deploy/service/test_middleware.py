import asyncio
from base64 import urlsafe_b64decode

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.deploy.identity.issuing import ed25519, public, token, write_keys
from tests.unit.deploy.service.offering import (
    SLOW,
    MemoryTable,
    PlainSigner,
    header,
    pushed,
    running,
    table,
)
from walle_deploy.model.pushes import Push, PushedTask
from walle_deploy.service.middleware import PUSH_HEADER_BYTES, encode_push, push_middleware
from walle_deploy.service.service import Parts, ReleaseService
from walle_deploy.service.settings import ServiceSpec
from walle_stream.clock import wall_ms


async def call(app, headers, kind="http"):
    sent = []

    async def send(message):
        sent.append(message)

    await app({"type": kind, "path": "/buy", "headers": headers}, None, send)
    return sent


async def business(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    scope["user"] = "u-1"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x", b"y")]})
    await send({"type": "http.response.body", "body": b"bought"})


def test_a_business_answer_carries_what_is_new():
    async def run():
        async with running(Parts(MemoryTable(table()), PlainSigner()), SLOW) as service:
            app = push_middleware(business, service, lambda scope: scope["user"])
            profile = header("d-5", user="u-1")
            start, body = await call(app, [(b"walle-profile", profile)])
            assert body["body"] == b"bought"
            value = dict(start["headers"])[b"walle-push"]
            push = msgspec.json.decode(urlsafe_b64decode(value + b"=="), type=Push)
            assert [each.target for each in push.tasks[0].files] == ["t-v2", "own-u1"]
            for headers in (
                [],
                [(b"walle-profile", b"bad")],
                [(b"walle-profile", header(tasks={"s/t": "v2"}))],
            ):
                start, _ = await call(app, headers)
                assert start["headers"] == [(b"x", b"y")]

    asyncio.run(run())


def test_a_device_that_has_not_proven_who_it_is_is_told_of_nothing(tmp_path):
    key = ed25519()
    keys = write_keys(tmp_path / "keys.json", public(key))
    asked = {"mode": "tokens", "keys": keys, "issuer": "shop", "header": "walle-token"}
    spec = SLOW.model_copy(
        update={"authentication": ServiceSpec(authentication=asked).authentication}
    )
    own = token(key, exp=wall_ms() // 1_000 + 600)

    async def run():
        async with running(Parts(MemoryTable(table())), spec) as service:
            app, found = push_middleware(business, service), []
            for given, device in ((b"", "d-1"), (b"x", "d-1"), (own, "d-2"), (own, "d-1")):
                headers = [(b"walle-profile", header(device)), (b"walle-token", given)]
                start, body = await call(app, headers)
                assert (start["status"], body["body"]) == (200, b"bought")
                found.append(b"walle-push" in dict(start["headers"]))
            assert found == [False, False, False, True]
            assert service.admission.refused == {"unproven": 2, "forbidden": 1}

    asyncio.run(run())


def test_the_service_lives_as_long_as_the_business_application():
    async def run():
        service = ReleaseService(SLOW, Parts(MemoryTable(table())))
        asked = asyncio.Queue()
        answers = asyncio.Queue()
        app = push_middleware(business, service)
        running = asyncio.create_task(app({"type": "lifespan"}, asked.get, answers.put))
        assert not service.is_ready
        await asked.put({"type": "lifespan.startup"})
        assert await answers.get() == {"type": "lifespan.startup.complete"}
        assert service.is_ready
        await asked.put({"type": "lifespan.shutdown"})
        assert await answers.get() == {"type": "lifespan.shutdown.complete"}
        await running

    asyncio.run(run())


def test_a_push_that_no_header_holds_is_sent_in_parts():
    tasks = tuple(
        PushedTask(f"s/t{number}", "v1", "r", (pushed(f"f{number}"),)) for number in range(200)
    )
    push, whole = Push(tasks, "https://cdn/metadata/"), {each.task for each in tasks}
    told = set()
    for begin in range(0, 200, 5):
        value, too_long = encode_push(push, PUSH_HEADER_BYTES, begin)
        assert len(value) <= PUSH_HEADER_BYTES
        assert too_long == []
        sent = unpacked(value)
        assert sent.metadata_url == push.metadata_url
        assert sent.tasks[0] == tasks[begin]
        assert len(sent.tasks) > 5
        told |= {each.task for each in sent.tasks}
    assert told == whole  # whichever of them a device refuses


def test_every_device_is_told_of_all_whoever_asks_between(monkeypatch):
    tasks = tuple(PushedTask(f"s/{name}", "v", "r" * 900) for name in "abc")

    async def run():
        async with running(Parts(MemoryTable(table())), SLOW) as service:
            monkeypatch.setattr(service, "check", lambda *_: Push(tasks))
            app = push_middleware(business, service, header_bytes=2_000)
            told = {"d-1": set(), "d-2": set(), "d-3": set()}
            while min(map(len, told.values())) < 3:
                for device, known in told.items():
                    start, _ = await call(app, [(b"walle-profile", header(device))])
                    [task] = unpacked(dict(start["headers"])[b"walle-push"]).tasks
                    known.add(task.task)

    asyncio.run(run())


def test_a_task_that_no_header_holds_keeps_no_other_away(caplog):
    long, short = PushedTask("s/long", "v", "r" * 3_000), PushedTask("s/t", "v", "r")
    assert encode_push(Push((long,)), PUSH_HEADER_BYTES) == (b"", ["s/long"])
    value, too_long = encode_push(Push((long, short)), PUSH_HEADER_BYTES)
    assert (unpacked(value).tasks, too_long) == ((short,), ["s/long"])

    async def run():
        async with running(Parts(MemoryTable(table())), SLOW) as service:
            app = push_middleware(business, service, header_bytes=100)
            start, _ = await call(app, [(b"walle-profile", header("d-5"))])
            assert start["headers"] == [(b"x", b"y")]

    asyncio.run(run())
    assert "s/t: walle-push cannot announce its new version" in caplog.text


@given(
    st.lists(st.integers(0, 400), min_size=1, max_size=40),
    st.integers(50, 3_000),
    st.integers(0, 100),
)
def test_the_most_that_fits_is_sent(sizes, room, begin):
    tasks = [PushedTask(f"s/t{number}", "v", "r" * size) for number, size in enumerate(sizes)]
    value, too_long = encode_push(Push(tuple(tasks)), room, begin % len(tasks))
    assert len(value) <= room
    sent = unpacked(value).tasks if value else ()
    assert not {each.task for each in sent} & set(too_long)
    for each in tasks:
        more, _ = encode_push(Push((*sent, each)), 10**6)
        assert each in sent or len(more) > room
        if each.task in too_long:
            assert len(encode_push(Push((each,)), 10**6)[0]) > room


def unpacked(value):
    return msgspec.json.decode(urlsafe_b64decode(value + b"=" * (-len(value) % 4)), type=Push)


def test_whatever_fails_of_a_check_the_business_answer_is_as_it_was(caplog):
    async def run():
        profile = [(b"walle-profile", header("d-5"))]
        async with running(Parts(MemoryTable(table())), SLOW) as service:
            for _ in range(3):
                app = push_middleware(business, service, lambda scope: scope["session"]["user"])
                start, _ = await call(app, profile)
                assert start["headers"] == [(b"x", b"y")]
        start, _ = await call(push_middleware(business, service), profile)
        assert start["headers"] == [(b"x", b"y")]

    asyncio.run(run())
    said = [each.message for each in caplog.records]
    assert said[0] == "no push: KeyError: 'session'"
    assert "service was not started" in said[1]
    assert len(said) == 2  # each once


def test_an_answer_with_a_push_is_kept_by_no_cache():
    async def cached(scope, receive, send):
        headers = [(b"cache-control", b"public, max-age=600"), (b"x", b"y")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"bought"})

    async def run():
        async with running(Parts(MemoryTable(table())), SLOW) as service:
            app = push_middleware(cached, service)
            start, _ = await call(app, [(b"walle-profile", header("d-5"))])
            assert [value for name, value in start["headers"] if name == b"cache-control"] == [
                b"no-store"
            ]
            up_to_date = header("d-5", tasks={"s/t": "v2"})
            start, _ = await call(app, [(b"walle-profile", up_to_date)])
            assert (b"cache-control", b"public, max-age=600") in start["headers"]

    asyncio.run(run())


def test_the_service_lives_also_where_the_application_knows_no_lifespan():
    async def plain(scope, receive, send):
        assert scope["type"] == "http", "no lifespan here"

    async def run():
        service = ReleaseService(SLOW, Parts(MemoryTable(table())))
        asked, answers = asyncio.Queue(), asyncio.Queue()
        app = push_middleware(plain, service)
        running = asyncio.create_task(app({"type": "lifespan"}, asked.get, answers.put))
        await asked.put({"type": "lifespan.startup"})
        assert await answers.get() == {"type": "lifespan.startup.complete"}
        assert service.is_running
        await asked.put({"type": "lifespan.shutdown"})
        assert await answers.get() == {"type": "lifespan.shutdown.complete"}
        await running
        assert not service.is_running

    asyncio.run(run())
