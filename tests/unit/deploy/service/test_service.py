import asyncio
from contextlib import contextmanager

import pytest

from tests.unit.deploy.service.offering import (
    SLOW,
    MemoryTable,
    PlainSigner,
    header,
    pushed,
    running,
    table,
)
from walle_deploy.distribution.signed_urls import KeyRing, UrlSigner, prove
from walle_deploy.model.profile import DeviceProfile
from walle_deploy.model.pushes import PushedFile, PushedTask
from walle_deploy.model.releases import ReleaseTable, VersionFiles
from walle_deploy.policy.rows import Offer
from walle_deploy.service.asgi import known_devices
from walle_deploy.service.figures import render_figures
from walle_deploy.service.pushing import PushBuilder
from walle_deploy.service.service import Parts
from walle_deploy.service.settings import ServiceSpec
from walle_stream.errors import ProfileError, ServiceUnreachableError


def checked(*headers, vouched="", parts=None):
    async def run():
        async with running(parts or Parts(MemoryTable(table()), PlainSigner())) as service:
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


@pytest.mark.parametrize("base", ["https://cen.example/files/", "http://x/exclusive/"])
def test_an_address_is_signed_without_its_host(base):
    ring = KeyRing.create()
    own = {"d-1": (PushedFile("own-1", f"exclusive/ab/{'a' * 64}", "a" * 64, 10),)}
    files = VersionFiles((pushed("t-v2"),), own)
    builder = PushBuilder(
        ReleaseTable(1, files={"s/t@v2": files}), ServiceSpec(cen=base), UrlSigner(ring)
    )
    push = builder.build([Offer("s/t", "v2", "r1")], DeviceProfile("d-1"), "")
    url = push.tasks[0].files[1].url
    assert url.startswith(f"{base}exclusive/ab/")
    proof = prove(ring.device_secret("d-1"), url)
    assert UrlSigner(ring).check(url.removeprefix(base), proof) == "d-1"


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
        async with running(Parts(MemoryTable(made), PlainSigner()), SLOW) as service:

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
    assert "_look failed and is retried" in caplog.text


def test_whoever_runs_it_knows_when_a_table_is_made():
    made = []

    @contextmanager
    def making():
        made.append("begin")
        yield
        made.append("end")

    async def run():
        source = MemoryTable(table())
        async with running(Parts(source, making=making), SLOW) as service:
            assert made == ["begin", "end"]
            await service._look()  # nothing is new
            assert made == ["begin", "end"]

    asyncio.run(run())


def test_before_there_is_a_table_a_check_is_told_to_come_again():
    async def run():
        source = MemoryTable(table())
        source.is_away = True
        async with running(Parts(source), SLOW) as service:
            assert not service.is_ready
            with pytest.raises(ServiceUnreachableError, match="not loaded yet"):
                service.check(header())

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
            assert known_devices(service)["devices"] == 1

    asyncio.run(run())
