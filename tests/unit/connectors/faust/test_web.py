"""What look-ups answer: only what is true of the whole topic, and now."""

import asyncio
import json
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

pytest.importorskip("faust", reason="the extra `cloud` is not installed")

from aiokafka import TopicPartition
from yarl import URL

from walle_connectors.faust import membership
from walle_connectors.faust.device_row import DeviceRow, encode_row
from walle_connectors.faust.merging import RecordCounts
from walle_connectors.faust.reports import ReportCounts
from walle_connectors.faust.watchdog import Place

GROUP = "walle-cloud-shop"


class Devices(dict):
    """The table."""

    changelog_topic = SimpleNamespace(get_topic_name=lambda: "devices-changelog")
    partitions = 4


class Web:
    """Faust's, as far as it is used."""

    @staticmethod
    def bytes(value, status=200, **_):
        return status, json.loads(value)


class Worker:
    """A worker's pages, on an app of attributes alone; ``net`` has the others by address."""

    def __init__(self, net, address, partitions, *, group=GROUP):
        from walle_connectors.faust.web import add_pages  # noqa: PLC0415 - imports Faust

        self.url, self.net, self.devices = URL(address), net, Devices()
        self.pages, self.signals, self.is_member = {}, {}, True
        self.partitions = partitions
        tps = [SimpleNamespace(topic="devices-changelog", partition=n) for n in partitions]
        app = SimpleNamespace(
            conf=SimpleNamespace(canonical_url=self.url, id=group, broker_session_timeout=10.0),
            page=lambda path: lambda page: self.pages.setdefault(path, page),
            on_partitions_revoked=self._signal("revoked"),
            on_rebalance_complete=self._signal("complete"),
            assignor=SimpleNamespace(assigned_actives=lambda: tps),
            router=SimpleNamespace(tables_metadata=self._metadata),
            http_client=SimpleNamespace(get=self._get),
            rebalancing=False,
            should_stop=False,
        )
        merger = SimpleNamespace(counts=RecordCounts())
        self.watchdog = SimpleNamespace(places={})
        self.made = SimpleNamespace(app=app, devices=self.devices, merger=merger, reports=None)
        add_pages(self.made, self.watchdog)
        net.setdefault(str(self.url), self)
        self.members = [self]

    def _signal(self, name):
        return SimpleNamespace(connect=lambda call: self.signals.setdefault(name, call))

    def _metadata(self):
        return {
            str(each.url): {"devices-changelog": sorted(each.partitions)} for each in self.members
        }

    @asynccontextmanager
    async def _get(self, address, headers, **_):
        there = self.net.get(str(address.origin()))
        if there is None:
            raise OSError("refused")
        device = address.path.rpartition("/")[2]
        status, shown = await there.page("/features/{device}", headers, device=device)

        async def read():
            return json.dumps(shown).encode()

        yield SimpleNamespace(status=status, read=read)

    async def page(self, path, headers=None, **names):
        request = SimpleNamespace(headers=headers or {}, query={}, query_string="")
        return await self.pages[path](Web, request, **names)

    def get(self, device):
        async def get():
            return await self.page("/features/{device}", device=device)

        return asyncio.run(get())

    def health(self):
        return asyncio.run(self.page("/healthz"))

    def ready(self, *members):
        self.members = members or (self,)
        asyncio.run(self.signals["complete"]())
        return self


@pytest.fixture(autouse=True)
def held(monkeypatch):
    """Whether the broker takes all workers for members; a test may say no."""
    found = SimpleNamespace(is_held=True, watch=lambda _: None)
    monkeypatch.setattr(membership, "Membership", lambda _: found)
    return found


def pair(net, *addresses):
    """Two workers that share four partitions; the second has device d."""
    one, two = (
        Worker(net, address, on) for address, on in zip(addresses, ([0, 1], [2, 3]), strict=True)
    )
    two.devices[b"d"] = encode_row(DeviceRow())
    return one.ready(one, two), two.ready(one, two)


def test_who_does_not_have_a_device_asks_the_others(caplog):
    one, two = pair({}, "http://a:1", "http://b:1")
    assert one.get("d") == two.get("d")
    assert one.get("d")[0] == 200
    assert one.get("x") == (404, {"error": "no features of device 'x'"})
    assert caplog.messages == []


def test_two_workers_of_one_address_never_deny_each_others_devices(caplog):
    one, two = pair({}, "http://127.0.0.1:6066", "http://127.0.0.1:6066")
    status, shown = one.get("d")
    assert status == 503
    assert "no worker that was asked has the partitions 2, 3; ask again" in shown["error"]
    assert two.get("x")[0] == 503
    asyncio.run(one.signals["complete"]())
    # each once
    assert ["at the same address" in each for each in caplog.messages] == [True, True]


def test_another_groups_worker_at_the_address_is_not_believed():
    net = {}
    elsewhere = Worker(net, "http://127.0.0.1:2", [0, 1, 2, 3], group="walle-cloud-x").ready()
    elsewhere.devices[b"d"] = encode_row(DeviceRow())
    one, _ = pair(net, "http://127.0.0.1:1", "http://127.0.0.1:2")
    for device in ("d", "x"):
        assert one.get(device)[0] == 503


def test_who_does_not_answer_is_named():
    net = {}
    one, _ = pair(net, "http://a:1", "http://b:1")
    del net["http://b:1"]
    assert one.get("d")[1]["error"] == "not known now: http://b:1 gave no answer; ask again"


def test_a_worker_that_was_cut_off_says_nothing_of_its_devices(held):
    one, two = pair({}, "http://a:1", "http://b:1")
    two.watchdog.places = {TopicPartition("t", 2): Place(1, is_behind=False)}
    assert two.health() == (
        200,
        {
            "status": "ok",
            "counts": dict.fromkeys(RecordCounts.__struct_fields__, 0),
            "reports": None,
            "partitions": {"2": {"is_behind": False}},
        },
    )
    two.made.reports = SimpleNamespace(counts=ReportCounts(sent=3))
    assert two.health()[1]["reports"] == {"sent": 3, "dropped": 0, "waiting": 0}
    held.is_held = False
    assert two.get("d")[0] == one.get("d")[0] == one.get("x")[0] == 503
    assert "the broker has not answered" in two.get("d")[1]["error"]
    assert (two.health()[0], two.health()[1]["status"]) == (503, "cut off")


def test_one_that_was_stopped_in_the_middle_of_a_look_up_does_not_answer_with_what_it_saw(held):
    class Slow(Devices):
        def get(self, _key):
            held.is_held = False
            return encode_row(DeviceRow())

    one, _ = pair({}, "http://a:1", "http://b:1")
    one.devices.__class__ = Slow
    assert one.get("d")[0] == 503
