"""Receipts from a real store to a running host's reports, through restarts, and what liars get."""

import threading
from contextlib import closing

import msgspec
import pytest

from tests.integration.deploy.device.hostile import DEVICES, WAIT_S, Service, _steps, package
from tests.integration.scripted_visits import PIPELINE
from tests.unit.deploy.hasty import hasty
from walle_deploy.assembly.hosting import Access, Hosting
from walle_deploy.model.held import HeldReceipts
from walle_deploy.model.profile import DeviceProfile, encode_profile
from walle_deploy.model.pushes import PUSH_TYPE
from walle_deploy.model.receipts import Receipt, ReceiptKeys
from walle_deploy.model.releases import VersionFiles
from walle_deploy.policy.hashing import id_hash, is_within, salt_key, share_limit
from walle_deploy.release.commands import ReleaseCommands
from walle_deploy.release.events import Tick
from walle_deploy.release.model import Release
from walle_deploy.service.service import Parts, ReleaseService
from walle_deploy.service.settings import ServiceSpec
from walle_deploy.store.adapters import StoredTables
from walle_deploy.store.receipt_keys import StoredReceiptKeys
from walle_deploy.store.sqlite import SqliteStore
from walle_stream.app.assembly import Assembly
from walle_stream.app.local import LocalRun
from walle_stream.app.options import RunOptions
from walle_stream.errors import ReceiptError
from walle_stream.testing.scripted import Gates, write_script
from walle_stream.wire.reports import decode_reports

pytestmark = [pytest.mark.integration, pytest.mark.vm]

TASK = "shop/visits"
SCRIPT = "def run(ctx, page):\n    ctx.emit({})\n"


def releases():
    """A name under which the first device is within 50 %, and the second beyond."""
    for number in range(100):
        name = f"r-{number}"
        key, limit = salt_key(name), share_limit(50)
        found = [is_within(id_hash(device), key, limit) for device in DEVICES[:2]]
        if found == [True, False]:
            return name
    raise AssertionError


class World:
    """A store with its release service behind a file server, and a host that runs twice."""

    def __init__(self, folder):
        self.folder = folder
        self.files = Service(folder)
        self.store = SqliteStore(folder / "releases.db")
        self.commands = ReleaseCommands(self.store, "ann")
        for version in ("v1", "v2"):
            self.files.publish(f"{TASK}@{version}", package(version))
            shared = (self.files.versions[f"{TASK}@{version}"],)
            self.commands.publish(TASK, version, VersionFiles(shared))
        self.commands.adopt(TASK, "v1")
        self.files.behave = self.answer
        self.look()
        (folder / "pipeline.yaml").write_text(PIPELINE)
        (folder / "visits.py").write_text(SCRIPT)
        write_script(folder / "steps.jsonl", _steps())
        self.gates, self.visits = Gates(folder / "steps.jsonl.gates"), 0
        self.reports = []

    def look(self):
        """Serve what the store has now, as a service that starts anew does."""
        spec = ServiceSpec(
            cdn=f"{self.files.url}/", metadata=f"{self.files.url}/metadata/", cen=self.files.url
        )
        parts = Parts(StoredTables(self.store), receipts=StoredReceiptKeys(self.store))
        service = ReleaseService(spec, parts)
        service._current = service._newer(-1)
        self.service = service

    def answer(self, handler, profile):
        push = self.service.check(encode_profile(profile).encode())
        if push is None:
            handler.answer(204)
        else:
            handler.answer(200, msgspec.json.encode(push), Content_Type=PUSH_TYPE)

    def take(self, frames):
        """Be the host's report sink."""
        for frame in frames:
            self.reports += decode_reports(frame.body)

    def hosted(self, visit):
        """Run the host, and what is to be done while it runs."""
        assembly = Assembly.load(
            self.folder / "pipeline.yaml", ["spec.reports={every: 100ms, scenario: shop}"]
        )
        profiles = [DeviceProfile(each) for each in DEVICES]
        root = self.files.repository.root()
        folder = self.folder / "data-files"
        hosting = Hosting(Access(self.files.url), root, profiles, {}, folder, every_s=0.05)
        with closing(hosting):
            hosting.fit(assembly)
            assembly.report_sink = self
            run = LocalRun(assembly, RunOptions(self.folder / "data", 2), hosting.beside)
            ended = []
            thread = threading.Thread(target=lambda: ended.append(run.run()))
            thread.start()
            try:
                assert self.gates.await_reached(f"p{self.visits}", WAIT_S)
                visit()
            finally:
                run.stop("test")
                self.gates.release(f"p{self.visits}")
                self.visits += 1
                thread.join(WAIT_S)
        assert ended

    def visit(self):
        self.gates.release(f"p{self.visits}")
        self.visits += 1
        assert self.gates.await_reached(f"p{self.visits}", WAIT_S)

    def await_device(self, device, version, release="", group=""):
        def is_right(profile):
            if profile.device != device or profile.tasks.get(TASK) != version:
                return False
            held = profile.receipts
            if not release:
                return held.since_hour > 0 and not held.others
            said = held.others.get(TASK)
            return said is not None and (said.release, said.group) == (release, group)

        self.files.await_profile(is_right)

    def proven(self):
        """What valid receipts say of each device and version that was reported."""
        keys = StoredReceiptKeys(self.store)
        found = {}
        for report in self.reports:
            for each in report.devices:
                if report.task != TASK or not each.receipt:
                    continue
                receipt = keys.keys.read(each.receipt, keys.now_ms())
                said = (each.device_id, report.task, report.version, report.release, report.group)
                assert said == (*msgspec.structs.astuple(receipt)[:5],)
                found.setdefault((each.device_id, report.version), set()).add(report.group)
        return found

    def close(self):
        self.files.close()
        self.store.close()


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.close()


def test_reports_carry_what_the_service_said_through_restarts(world):
    name = releases()

    def first():
        for device in DEVICES:
            world.await_device(device, "v1")
        world.visit()
        world.commands.create(
            Release.model_validate(
                {
                    "apiVersion": "walle/v1",
                    "kind": "Release",
                    "metadata": {"name": name},
                    "spec": hasty({"task": TASK, "version": "v2", "gray": [{"percent": 50}]}),
                }
            )
        )
        world.commands.apply(name, lambda look, _: Tick(look.now_ms(), "go", 0, "ok"))
        world.look()
        world.await_device(DEVICES[0], "v2", name, "new")
        world.await_device(DEVICES[1], "v1", name, "control")
        world.visit()

    world.hosted(first)
    found = world.proven()
    assert found[DEVICES[0], "v1"] == {""}
    assert found[DEVICES[0], "v2"] == {"new"}
    # on a busy machine the first visit counts when the release has begun
    assert {"control"} <= found[DEVICES[1], "v1"] <= {"", "control"}
    assert (DEVICES[1], "v2") not in found

    # the host begins anew and no service answers: it has what it had
    world.reports.clear()
    with world.files.dead():
        world.hosted(world.visit)
    found = world.proven()
    assert (found[DEVICES[0], "v2"], found[DEVICES[1], "v1"]) == ({"new"}, {"control"})
    assert sum(len(each.devices) for each in world.reports) >= len(DEVICES)


def test_what_others_make_up_is_no_receipt_of_this_store(world):
    keys = StoredReceiptKeys(world.store)
    keys.refresh()
    now_ms = keys.now_ms()
    own = Receipt("d", TASK, "v2", "r", "new", now_ms)
    hour = 3_600_000
    for made, problem in (
        (ReceiptKeys.create().issue(own), "forged"),  # another fleet's
        (keys.keys.issue(own)[:-2] + "AA", "forged"),
        (keys.keys.issue(msgspec.structs.replace(own, issued_ms=now_ms - 169 * hour)), "expired"),
        (keys.keys.issue(msgspec.structs.replace(own, issued_ms=now_ms + hour)), "ahead"),
    ):
        with pytest.raises(ReceiptError) as found:
            keys.keys.read(made, now_ms)
        assert found.value.problem == problem


def test_who_asks_for_another_device_gets_a_receipt_for_that_one_alone(world):
    # without device authentication whoever asks gets one; it is of no use with another device,
    # task or version, which it names
    keys = StoredReceiptKeys(world.store)
    profile = DeviceProfile("victim", tasks={TASK: "v1"}, receipts=HeldReceipts())
    push = world.service.check(encode_profile(profile).encode())
    found = keys.keys.read(push.receipts[TASK], keys.now_ms())
    assert (found.device, found.task, found.version, found.group) == ("victim", TASK, "v1", "")
