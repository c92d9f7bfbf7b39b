import asyncio
from base64 import urlsafe_b64decode
from contextlib import asynccontextmanager

import msgspec
import pytest

from walle_deploy.model.profile import PROFILE_MAX_BYTES, DeviceProfile, encode_profile
from walle_deploy.model.pushes import Push, PushedFile, PushedTask
from walle_deploy.model.releases import ActiveRelease, ReleaseTable, VersionFiles
from walle_deploy.service.admin import known_devices
from walle_deploy.service.figures import render_figures
from walle_deploy.service.middleware import encode_push, push_middleware
from walle_deploy.service.ports import FileTable, write_table
from walle_deploy.service.service import Parts, ReleaseService
from walle_deploy.service.settings import ServiceSpec
from walle_stream.errors import IntegrityError, ProfileError, ServiceUnreachableError

SPEC = ServiceSpec(cdn="https://cdn/x/", cen="https://cen/", metadata="https://cdn/m/")
SLOW = ServiceSpec.model_validate({"poll": "60s", "knownDevices": {"flush": "20s"}})


class MemoryTable:
    def __init__(self, table):
        self.table = table
        self.is_away = False

    def generation(self):
        if self.is_away:
            raise ServiceUnreachableError("the database does not answer")
        return self.table.generation

    def load(self):
        return self.table


class MemorySink:
    def __init__(self):
        self.batches = []
        self.is_away = False

    def write(self, batch):
        if self.is_away:
            raise ServiceUnreachableError("the database does not answer")
        self.batches.append(batch)


class PlainSigner:
    def sign(self, url, device):
        return f"{url}?for={device}"


def pushed(name):
    return PushedFile(name, f"targets/{name}", "0" * 64, 10)


def table(generation=1, **more):
    release = ActiveRelease("r1", "s/t", "v2", "gray", {"app": "shop"}, percent=100.0, salt="r1")
    own = {"d-1": (pushed("own-1"),), "user:u-1": (pushed("own-u1"),)}
    return ReleaseTable(
        generation,
        (release,),
        {"s/t": "v1"},
        {"s/t@v2": VersionFiles((pushed("t-v2"),), own), "s/t@v1": VersionFiles((pushed("t-v1"),))},
        **more,
    )


def header(device="d-1", app="shop", **more):
    return encode_profile(DeviceProfile(device, app, **more)).encode()


@asynccontextmanager
async def running(parts, spec=SPEC):
    service = ReleaseService(spec, parts)
    async with service.running():
        yield service


def checked(*headers, vouched="", parts=None):
    async def run():
        async with running(parts or Parts(MemoryTable(table()), None, PlainSigner())) as service:
            return [service.check(each, vouched) for each in headers]

    return asyncio.run(run())


def test_a_device_gets_addresses_of_what_is_new_for_it():
    fits, has_it, other = checked(
        header("d-9"), header("d-9", tasks={"s/t": "v2"}), header("d-9", "x")
    )
    assert fits.metadata_url == "https://cdn/m/"
    (task,) = fits.tasks
    assert (task.task, task.version, task.release) == ("s/t", "v2", "r1")
    assert [each.url for each in task.files] == ["https://cdn/x/targets/t-v2"]
    assert has_it is None
    assert (other.tasks[0].version, other.tasks[0].release) == ("v1", "")


def test_exclusive_files_are_signed_for_the_device_that_asks():
    (push,) = checked(header("d-1"))
    assert [each.url for each in push.tasks[0].files] == [
        "https://cdn/x/targets/t-v2",
        "https://cen/targets/own-1?for=d-1",
    ]
    assert push.tasks[0].files[1].audience == "exclusive"


def test_a_device_that_lies_about_its_user_gets_nothing_of_the_users():
    def names(vouched):
        (push,) = checked(header("d-5", user="u-1"), vouched=vouched)
        return [each.target for each in push.tasks[0].files]

    assert names("") == names("u-2") == ["t-v2"]
    assert names("u-1") == ["t-v2", "own-u1"]


def test_without_a_signer_no_exclusive_file_is_named():
    (push,) = checked(header("d-1"), parts=Parts(MemoryTable(table())))
    assert [each.target for each in push.tasks[0].files] == ["t-v2"]


def test_a_version_without_files_is_not_offered_and_an_empty_one_is_uninstalled():
    bare = Parts(MemoryTable(ReleaseTable(1, (), {"s/t": "v9", "s/u": ""})))
    push, nothing = checked(header(tasks={"s/u": "v1"}), header(), parts=bare)
    assert push.tasks == (PushedTask("s/u", ""),)
    assert nothing is None


def test_a_version_is_offered_to_devices_that_it_has_code_for_alone():
    files = {
        "s/t@v2": VersionFiles((pushed("t-v2"),), {"d-1": (pushed("own"),)}, ("cpython-314",)),
        "s/t@v1": VersionFiles((pushed("t-v1"),), {}, ("cpython-313", "cpython-314")),
    }
    made = table()
    gone = {"s/t": frozenset({"v7"})}
    made = ReleaseTable(1, made.releases, {"s/t": "v1"}, files, withdrawn=gone)

    async def run():
        async with running(Parts(MemoryTable(made), None, PlainSigner()), SLOW) as service:

            def version(device, **more):
                push = service.check(header(device, **more))
                return push.tasks[0].version if push else None

            assert version("d-1", interpreter="cpython-314") == "v2"
            assert version("d-2", interpreter="") == "v2"
            for device in ("d-1", "d-1", "d-3"):
                # the stable version, which has code for it, in place of the release's
                assert version(device, interpreter="cpython-313", tasks={"s/t": "v0"}) == "v1"
            assert version("d-4", app="x", interpreter="cpython-313") == "v1"
            # nothing for it at all: it keeps what it has, but what was rolled back
            assert version("d-5", app="x", interpreter="cpython-312", tasks={"s/t": "v2"}) is None
            assert version("d-5", app="x", interpreter="cpython-312", tasks={"s/t": "v7"}) == ""
            assert service.index.unfit_devices == {"r1": 2, "": 1}
            text = render_figures(service.figures())
            assert "walle_release_unfit_devices{" in text
            assert 'release="r1"} 2' in text

    asyncio.run(run())


def test_a_version_of_which_no_interpreters_are_known_is_offered_to_all():
    (push,) = checked(header(interpreter="cpython-200"))
    assert push.tasks[0].version == "v2"


def test_a_newer_table_is_taken_over_and_the_last_one_stays_when_the_store_is_away():
    async def run():
        source = MemoryTable(table(1))
        async with running(Parts(source), SLOW) as service:
            source.table = ReleaseTable(2, (), {"s/t": ""})
            await service._look()
            assert service.index.generation == 2
            source.is_away = True
            await service._look()
            assert service.is_ready
            assert "does not answer" in service.problem
            source.is_away, source.table = False, table(3)
            await service._look()
            assert (service.index.generation, service.problem) == (3, "")

    asyncio.run(run())


def test_a_store_that_fails_in_an_unforeseen_way_is_asked_again(caplog):
    async def run():
        loop, is_loaded = asyncio.get_running_loop(), asyncio.Event()

        class Broken(MemoryTable):
            turns = 0

            def generation(self):
                self.turns += 1
                if self.turns == 2:
                    raise ZeroDivisionError
                return super().generation()

            def load(self):
                if self.turns > 2:
                    loop.call_soon_threadsafe(is_loaded.set)
                return super().load()

        source = Broken(table(1))
        async with running(Parts(source), ServiceSpec.model_validate({"poll": "10ms"})):
            source.table = table(2)
            await is_loaded.wait()

    asyncio.run(run())
    assert "_look failed, it is tried again" in caplog.text


def test_before_there_is_a_table_a_check_is_told_to_come_again():
    async def run():
        source = MemoryTable(table())
        source.is_away = True
        async with running(Parts(source), SLOW) as service:
            assert not service.is_ready
            with pytest.raises(ServiceUnreachableError, match="not loaded yet"):
                service.check(header())

    asyncio.run(run())


def test_known_devices_are_written_behind_and_at_the_end():
    async def run():
        sink = MemorySink()
        async with running(Parts(MemoryTable(table()), sink), SLOW) as service:
            service.check(header("d-1", tasks={"s/t": "v2"}))
            sink.is_away = True
            await service._write()
            sink.is_away = False
            service.check(header("d-2"))
        (batch,) = sink.batches
        assert (batch.worker, batch.devices) == (service.worker, 2)
        assert batch.counts == {}  # whoever is there next counts them
        assert len(batch.changed) == 1

    asyncio.run(run())


def test_figures_say_what_became_of_checks():
    async def run():
        async with running(Parts(MemoryTable(table())), SLOW) as service:
            service.check(header())
            with pytest.raises(ProfileError):
                service.check(b"bad")
            text = render_figures(service.figures())
            assert 'answer="pushed"} 1' in text
            assert 'answer="bad_profile"} 1' in text
            assert 'release="r1"} 1' in text
            assert known_devices(service)["classes"][0]["app"] == "shop"

    asyncio.run(run())


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
        async with running(Parts(MemoryTable(table()), None, PlainSigner()), SLOW) as service:
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
    value = encode_push(Push(tasks))
    assert len(value) <= PROFILE_MAX_BYTES
    sent = msgspec.json.decode(urlsafe_b64decode(value + b"=="), type=Push).tasks
    assert sent == tasks[: len(sent)]
    assert len(sent) > 15
    assert encode_push(Push((PushedTask("s/t", "v", "r" * 9_000),))) == b""


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


def test_a_table_in_a_file_is_seen_when_it_changes(tmp_path):
    file = tmp_path / "table.json"
    source = FileTable(file)
    for act in (source.generation, source.load):
        with pytest.raises(ServiceUnreachableError, match=r"table\.json"):
            act()
    write_table(file, table(4))
    assert (source.generation(), source.load()) == (4, table(4))
    write_table(file, table(5))
    assert source.generation() == 5
    file.write_text("{")
    with pytest.raises(IntegrityError, match="no table of releases"):
        source.generation()
