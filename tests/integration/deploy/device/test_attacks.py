"""Attacks on a running device: each is refused with its reason, features go on, then good comes."""

import errno
import gzip
import os
import re
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from tests.integration.deploy.device.hostile import http_date, opened, package, trickle
from tests.integration.deploy.files.test_hostile_packages import HOSTILE
from walle_deploy.assembly.hosting import Access, Hosting
from walle_deploy.device import agent as agent_module
from walle_deploy.device import files_metadata, fleet
from walle_deploy.device.agent import Outcome
from walle_deploy.device.files_installed import named_files
from walle_deploy.model.profile import DeviceProfile
from walle_deploy.model.pushes import PushedFile, PushedTask
from walle_deploy.trust.repository import NewTarget
from walle_stream.errors import IntegrityError, ServiceBusyError, ServiceUnreachableError
from walle_stream.vm.package import build
from walle_stream.vm.package.reader import MANIFEST, SCRIPT, read_package

pytestmark = [pytest.mark.integration, pytest.mark.vm]

DAY_S = 86_400
TASK = "shop/visits"


def past_the_gate(data):
    read = read_package(data)
    members = {**read.parts, SCRIPT: b"import os\n" + read.parts[SCRIPT]}
    return build._sealed({MANIFEST: msgspec.json.encode(read.manifest), **members})


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", _sync)
        service, host, stack = opened(tmp_path_factory.mktemp("attacks"))
        with stack:
            for version in ("v1", "v2", "v6"):
                service.publish(f"{TASK}@{version}", package(version))
            service.publish(f"{TASK}@v3", past_the_gate(package("v3")))
            for layout in (3, 2):
                name = f"{TASK}@layout{layout}"
                service.publish(name, package(f"layout{layout}", layout=layout))
            service.publish("shop/other@v1", package("v1", "other"))
            service.publish("read/visits@r1", package("r1"))
            yield service, host
    assert host.features() == host.expected  # nothing was lost, nothing ran by what was refused


@pytest.fixture
def service(world):
    world[0].evil, world[0].date = {}, None
    return world[0]


@pytest.fixture
def host(world, clock):
    return world[1]


@pytest.fixture
def clock(monkeypatch):
    """Moves the time by which agents try again."""
    at = [0.0]
    monkeypatch.setattr(agent_module, "monotonic_ms", lambda: at[0])
    monkeypatch.setattr(files_metadata, "FRESH_MS", 0)

    def move(by_ms):
        at[0] += by_ms

    return move


@pytest.fixture
def agent(service, host):
    """The agent of phone-1, which has v1 or v2."""
    made = host.agent("phone-1")
    if "v" not in host.versions("phone-1")["visits"]:
        service.push(f"{TASK}@v1")
        assert made.check() is Outcome.INSTALLED
    for path in host.files.blobs.folder.glob("??/*"):
        path.unlink()  # what is attacked must be on its way
    return made


@pytest.fixture
def other(host, agent):
    """The good version that phone-1 has not."""
    return f"{TASK}@{'v1' if host.versions('phone-1')['visits'] == 'v2' else 'v2'}"


@pytest.fixture
def refused(host, service, agent, clock, other):
    """A push is refused twice, with a growing pause; features go on, then a good push comes."""

    def check(reason, mend=lambda: None, good=other):
        before = host.versions("phone-1")
        host.lines.lines.clear()
        assert agent.check() is Outcome.REFUSED
        assert agent.check() is Outcome.REFUSED  # too early, it is not tried
        clock(2_000)
        assert agent.check() is Outcome.REFUSED
        logged = host.lines.lines
        assert len(logged) == 2
        for (device, task, line), pause in zip(logged, ("2 s", "4 s"), strict=True):
            assert (device, task) == ("phone-1", agent_task(line))
            assert reason in line
            assert line.endswith(f"tried again in {pause}")
            assert "\n" not in line
        assert host.versions("phone-1") == before
        host.visit()
        service.evil, service.date = {}, None
        mend()
        service.push(good)
        clock(4_000)
        assert agent.check() is Outcome.INSTALLED
        assert host.versions("phone-1")["visits"] == good.rpartition("@")[2]
        host.visit()

    return check


def agent_task(line):
    return line.partition("@")[0]


def served(data):
    return lambda handler: handler.answer(200, data)


def changed(data):
    data = bytearray(data)
    data[100] ^= 1
    return bytes(data)


@pytest.mark.parametrize(
    ("spoiled", "reason"),
    [
        (changed, "not the one that was signed"),
        (lambda data: data[:-9], "not the one that was signed"),
        (lambda data: data + package("v1"), "more than the"),
    ],
    ids=["tampered", "truncated", "longer"],
)
def test_a_package_that_is_not_the_signed_one(service, refused, other, spoiled, reason):
    file = service.versions[other]
    service.push(other)
    service.evil = {file.url: served(spoiled((service.public / file.url).read_bytes()))}
    refused(reason)


def test_another_signed_package_in_its_place(service, refused, other):
    mine, file = service.versions[other], service.versions["read/visits@r1"]
    # of the same size, so that the bytes alone tell
    data = (service.public / file.url).read_bytes()[: mine.size_bytes].ljust(mine.size_bytes, b"0")
    service.push(other)
    service.evil = {mine.url: served(data)}
    refused("not the one that was signed")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_packages_that_are_signed_and_hostile(service, host, agent, other):
    """Zip-slip, links, bombs: what a thief of the publisher's key would make."""
    before = host.versions("phone-1")
    for number, (name, (make, reason)) in enumerate(HOSTILE.items()):
        version = f"bad{number}"
        data = make(package(version))
        target = f"{TASK}/{version}/x.walle"
        service.repository.add([NewTarget(target, data, {"task": TASK, "version": version})])
        signed = service.repository.find(target)
        digest = signed.hashes["sha256"]
        file = PushedFile(target, f"targets/{digest[:2]}/{digest}", digest, signed.length)
        service.versions[f"{TASK}@{version}"] = file
        service.push(f"{TASK}@{version}")
        host.lines.lines.clear()
        assert agent.check() is Outcome.REFUSED, name
        [(device, _, line)] = host.lines.lines
        assert device == "phone-1"
        assert re.search(reason, line), (name, line)
        assert host.versions("phone-1") == before
    host.visit()
    service.push(other)
    assert agent.check() is Outcome.INSTALLED
    host.visit()


def test_a_package_that_comes_without_end_or_a_byte_at_a_time(service, refused, other):
    url = service.versions[other].url
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"
    service.push(other)
    service.evil = {url: trickle(head, b"y" * 5_000)}
    refused("fewer than 200 bytes per second")


def test_tampered_metadata(service, refused, other):
    newest = (service.public / "metadata" / "timestamp.json").read_bytes()
    service.evil = {"timestamp.json": served(newest.replace(b'"version":', b'"version":1'))}
    service.push(other)
    refused("is not what was signed")


def test_expired_metadata(service, refused, other):
    service.push(other)
    service.date = http_date(time.time() + 3 * DAY_S)
    refused("expired, judged by")


def test_older_metadata_than_was_seen(service, refused, agent, other, host):
    saved, before = service.saved(), host.versions("phone-1")["visits"]
    service.repository.refresh()
    newest = service.saved()
    service.push(other)
    assert agent.check() is Outcome.INSTALLED
    service.restore(saved)
    back = f"{TASK}@{before}"
    service.push(back)
    refused("older than what was seen", mend=lambda: service.restore(newest), good=back)


def test_a_signed_package_under_another_tasks_name(service, refused, host):
    file = service.file("shop/other@v1")
    service.push(PushedTask(TASK, "v4", "r1", (file,)))
    refused("was signed for shop/other@v1, and pushed as shop/visits@v4")


def test_a_package_that_was_signed_under_a_wrong_name(service, refused):
    data = package("v5", "other")
    name = f"{TASK}/v5/x.walle"
    service.repository.add([NewTarget(name, data, {"task": TASK, "version": "v5"})])
    right = service.versions["shop/other@v1"]
    target = service.repository.find(name)
    url = f"targets/{target.hashes['sha256'][:2]}/{target.hashes['sha256']}"
    assert url != right.url
    service.versions[f"{TASK}@v5"] = PushedFile(name, url, target.hashes["sha256"], target.length)
    service.push(f"{TASK}@v5")
    refused("its package holds other@v5: it was signed as another version")


def test_a_package_whose_script_no_builder_let_through(service, refused):
    service.push(f"{TASK}@v3")
    refused("imports 'os', which a script may not")


def test_a_task_of_another_scenario_under_a_name_that_is_taken(service, refused):
    service.push("read/visits@r1")
    refused("the device already has a task of this name, shop/visits")
    service.push(service.task("read/visits"))


def test_a_state_layout_that_cannot_go_back(service, host, clock):
    agent = host.agent("phone-2")
    host.visit()
    service.push(f"{TASK}@layout3")
    assert agent.check() is Outcome.INSTALLED
    host.visit()  # the state has the new layout, that of 1 is kept
    service.push(f"{TASK}@layout2")
    host.lines.lines.clear()
    assert agent.check() is Outcome.REFUSED
    assert "no state of the earlier layout was kept" in host.lines.lines[0][2]
    assert host.versions("phone-2") == {"visits": "layout3"}
    host.visit()
    service.push(f"{TASK}@v1")
    assert agent.check() is Outcome.INSTALLED
    host.visit()


def test_one_bad_task_keeps_no_other_one_away(service, host, agent, other, clock):
    service.push(f"{TASK}@v3", "shop/other@v1")
    host.lines.lines.clear()
    assert agent.check() is Outcome.REFUSED
    assert host.versions("phone-1")["other"] == "v1"
    assert [line for *_, line in host.lines.lines if "imports 'os'" in line]
    service.push(other, service.task("shop/other"))
    assert agent.check() is Outcome.INSTALLED
    assert host.versions("phone-1") == {"visits": other.rpartition("@")[2]}


@pytest.mark.parametrize("is_ahead", [False, True])
def test_a_wrong_clock_of_the_device(service, host, agent, other, monkeypatch, is_ahead):
    off_s, before = (3_650 if is_ahead else -3_650) * DAY_S, host.versions("phone-1")
    monkeypatch.setattr(files_metadata, "wall_ms", lambda: int(time.time() + off_s) * 1_000)
    service.push(other)
    if not is_ahead:  # the service says what time it is
        assert agent.check() is Outcome.INSTALLED
        return
    host.lines.lines.clear()
    assert agent.check() is Outcome.REFUSED
    assert "or this device's clock is wrong" in host.lines.lines[0][2]
    assert host.versions("phone-1") == before


def test_a_service_whose_clock_is_years_behind(service, agent, other):
    service.date = http_date(1_000_000)
    service.push(other)
    assert agent.check() is Outcome.INSTALLED


def test_a_disk_that_is_full_at_each_write(service, host, agent, clock):
    service.push(f"{TASK}@v6")  # of which nothing is here
    before, reasons = host.versions("phone-1"), []
    host.lines.lines.clear()
    failed = set()
    for _ in range(60):
        with FullDisk(failed) as disk:
            outcome = agent.check()
        clock(1_000_000)
        reasons += [line for *_, line in host.lines.lines if not line.startswith("installed")]
        host.lines.lines.clear()
        if outcome is Outcome.INSTALLED:
            break
        assert disk.is_full
        assert host.versions("phone-1") == before
    assert len(failed) > 12
    assert "is installed, but not recorded" in reasons[-1]
    assert all("full" in reason or "No space" in reason for reason in reasons)
    assert any("packages/" in reason for reason in reasons)
    assert any("data-files" in reason for reason in reasons)
    host.visit()


def test_a_disk_that_a_version_would_fill_is_not_left_full_of_it(service, host, agent, monkeypatch):
    service.push(f"{TASK}@v6")
    replace = Path.replace

    def full(self, target):
        if "packages" in str(target):
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", full)
    assert agent.check() is Outcome.REFUSED
    kept = {path.name for path in host.files.blobs.folder.glob("??/*")}
    assert kept <= named_files(host.files.folder / "devices")


def _sync(_descriptor):
    """No power cut is tested."""


class FullDisk(pytest.MonkeyPatch):
    """The disk of this device is full from the first write on at which it never was."""

    def __init__(self, failed):
        super().__init__()
        self.failed, self.is_full = failed, False

    def __enter__(self):
        for module, name in ((os, "replace"), (Path, "replace"), (Path, "mkdir"), (Path, "open")):
            self.setattr(module, name, self._counted(getattr(module, name)))
        self.setattr(os, "fsync", self._counted(_sync))
        made = self._counted(tempfile.NamedTemporaryFile)
        self.setattr(tempfile, "NamedTemporaryFile", made)
        return self

    def __exit__(self, *_):
        self.undo()

    def _counted(self, original):
        def call(*args, **more):
            is_sync = original is _sync
            said = str(Path(f"/dev/fd/{args[0]}").readlink()) if is_sync else f"{args} {more}"
            is_ours = "data-files" in said or "packages" in said
            is_read = original.__name__ == "open" and "rb" in said
            if is_ours and not is_read:
                step = original, re.sub(r"tmp\w+|\.\w{32}\b", "", said)
                self.is_full |= step not in self.failed
                if self.is_full:
                    self.failed.add(step)
                    raise OSError(errno.ENOSPC, "No space left on device")
            return original(*args, **more)

        return call


JSON = {"Content_Type": "application/vnd.walle.push+json"}


def bomb(handler, _profile=None):
    data = gzip.compress(b" " * 20_000_000)
    handler.close_connection = True
    handler.answer(200, data, Connection="close", Content_Encoding="gzip", **JSON)


def endless(handler, _profile):
    handler.close_connection = True
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.end_headers()
    with suppress(OSError):
        while True:
            handler.wfile.write(b"[" * 65_536)


def cut(handler, _profile):
    handler.close_connection = True
    handler.wfile.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
    )


def says(status, body=b"", **headers):
    return lambda handler, _profile: handler.answer(status, body, **headers)


MANY = msgspec.json.encode(
    {"tasks": [{"task": f"shop/t{n}", "version": "v1"} for n in range(9_000)]}
)
LONG = msgspec.json.encode({"tasks": [{"task": "shop/" + "x" * 9_999, "version": "v1"}]})
LINES = msgspec.json.encode({"tasks": [{"task": "shop/x\ny", "version": "v1"}]})
SLOW_HEAD = trickle(b"HTTP/1.1 200 OK\r\nX: ", b"y" * 9_999)
SLOW_BODY = trickle(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b"y" * 9_999)
ANSWERS = {
    "garbage": (says(200, b"{", **JSON), IntegrityError, "not a valid push"),
    "another-type": (says(200, b'{"tasks": 7}', **JSON), IntegrityError, "not a valid push"),
    "no-base64": (says(200, walle_push="!"), IntegrityError, "not a valid push|not base64url"),
    "a-bomb": (bomb, IntegrityError, "not a valid push"),
    "endless": (endless, IntegrityError, "more than"),
    "cut": (cut, ServiceUnreachableError, "does not answer"),
    "slow-head": (SLOW_HEAD, ServiceUnreachableError, "does not answer"),
    "slow-body": (SLOW_BODY, ServiceUnreachableError, "takes longer|does not answer"),
    "an-error": (says(500, b"a\nb"), ServiceUnreachableError, "answered 500"),
    "elsewhere": (says(302, Location="/v1/check"), ServiceUnreachableError, "answered 302"),
    "busy": (says(503, Retry_After="nan"), ServiceBusyError, "next attempt in 5 s"),
    "too-many": (says(200, MANY, **JSON), IntegrityError, "not a valid push: 9000 tasks"),
    "a-long-name": (says(200, LONG, **JSON), IntegrityError, "not a valid push"),
    "a-name-of-lines": (says(200, LINES, **JSON), IntegrityError, "not a valid push"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_is_no_push(service, host, agent, name):
    before = host.versions("phone-1")
    service.behave, error, reason = ANSWERS[name]
    with pytest.raises(error, match=reason) as caught:
        agent.check()
    assert len(str(caught.value)) < 500
    assert "\n" not in str(caught.value)
    service.behave = None
    assert agent.check() is Outcome.NOTHING_NEW  # the connection is not spoiled
    assert host.versions("phone-1") == before


def test_a_service_that_dies_in_the_middle(service, host, agent, other, clock):
    service.push(other)
    url = service.versions[other].url
    whole = (service.public / url).read_bytes()

    def dies(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(whole)))
        handler.end_headers()
        handler.wfile.write(whole[:400])

    service.evil = {url: dies}
    assert agent.check() is Outcome.REFUSED
    service.evil = {}
    with service.dead(), pytest.raises(ServiceUnreachableError, match="does not answer"):
        agent.check()
    host.visit()
    clock(10_000)
    assert agent.check() is Outcome.INSTALLED
    host.visit()


def test_agents_outlive_all_of_it(service, host, other, monkeypatch):
    """The threads of a host's agents, through every bad answer, to a good one."""
    monkeypatch.setattr(fleet, "BACKOFF_MAX_S", 0.002)
    monkeypatch.setattr(fleet, "_WAIT_MAX_S", 0.002, raising=False)
    hosting = Hosting(
        Access(service.url),
        service.repository.root(),
        [DeviceProfile("phone-1")],
        {},
        host.folder / "data-files",
        every_s=0.002,
    )
    quick = [name for name in ANSWERS if "slow" not in name and name != "busy"]
    with hosting.beside(host.run):
        for name in quick:
            service.behave = ANSWERS[name][0]
            service.await_checks(2)
        host.lines.lines.clear()  # another test may have installed it, too
        service.push(other)
        installed = ("phone-1", TASK, f"installed {other}")
        host.lines.await_line(installed)
    hosting.close()
    assert host.versions("phone-1")["visits"] == other.rpartition("@")[2]
    host.visit()
