import json
import socket
import sys
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from made import record, stretch

from walle_stream.clock import unstopped_ms
from walle_stream.cloud import lookups
from walle_stream.cloud.lookups import Group, LookUps, serve_look_ups
from walle_stream.cloud.partitions import Partitions, TableOptions
from walle_stream.errors import MetricsAddressError

MINUTE_MS = 60_000


class Worker:
    """A worker of a group of two, which has one of three partitions, or more."""

    def __init__(self, folder, owners, group="g"):
        self.owners, self.asked = owners, []
        self.tables = Partitions(folder, "", TableOptions(keep=2))
        of_group = Group(group, 3, self._find)
        look_ups = LookUps(self.tables, of_group, 2, lambda: {"reports": None})
        self.server = serve_look_ups("127.0.0.1", 0, look_ups)
        self.port = self.server.port
        self.tables.incarnation = self.address = f"127.0.0.1:{self.port}"
        self.tables.joined(is_member=True)

    def _find(self, wrong):
        return self.find(wrong)

    def find(self, wrong):
        self.asked.append(sorted(wrong))
        return self.owners

    def own(self, *partitions):
        self.tables.assign(partitions, 1)
        for each in partitions:
            self.tables.expect(each, 0, 0)
            self.owners[each] = self.address
        self.tables.held_until(unstopped_ms() + MINUTE_MS)

    def put(self, partition, *records):
        self.tables.take(partition, [stretch(*records, partition=partition)], b"x", 1)

    def get(self, path, headers=()):
        with closing(HTTPConnection(self.address, timeout=30)) as connection:
            connection.request("GET", path, headers=dict(headers))
            answer = connection.getresponse()
            return answer.status, json.load(answer)

    def close(self):
        self.server.close()
        self.tables.close()


@pytest.fixture
def owners():
    return {}


@pytest.fixture
def one(tmp_path, owners):
    made = Worker(tmp_path / "one", owners)
    made.own(0)
    yield made
    made.close()


@pytest.fixture
def two(tmp_path, owners):
    made = Worker(tmp_path / "two", owners)
    made.own(1, 2)
    yield made
    made.close()


def test_the_latest_features_are_shown_newest_first(one):
    one.put(0, *(record("a/b é", number) for number in (1, 2, 3)), record("a/b é", 4, "other"))
    path = "/features/a%2Fb%20%C3%A9"
    status, row = one.get(path)
    assert (status, row["device_id"], row["gaps"]) == (200, "a/b é", 0)
    assert [each["sequence_number"] for each in row["tasks"]["t"]] == [3, 2]
    assert row["tasks"]["t"][0] == {
        "incarnation": "ab" * 8,
        "sequence_number": 3,
        "task_version": "1",
        "event_time_ms": 1_003,
        "feature": {"a": 1},
        "encoding": "ZQ==",
    }
    assert row["incarnations"][0]["features"] == 4
    assert list(one.get(f"{path}?task=other")[1]["tasks"]) == ["other"]
    assert one.get(f"{path}?task=none")[1]["tasks"] == {}


def test_a_device_of_another_worker_is_asked_for_there(one, two):
    two.put(2, record("d", 1))
    assert one.get("/features/d") == two.get("/features/d")
    assert one.get("/features/d")[0] == 200
    assert one.get("/features/nobody")[0] == two.get("/features/nobody")[0] == 404


def test_an_owner_that_has_moved_is_looked_for_once_more(one, two, owners):
    two.put(2, record("d", 1))
    real, owners[1], owners[2] = dict(owners), "127.0.0.1:1", one.address

    def find(wrong):
        if wrong:
            owners.update(real)
        return dict(owners)

    one.find = find
    assert one.get("/features/d")[0] == 200


@pytest.fixture
def hanging(monkeypatch):
    """The address of somebody who accepts connections, and never answers."""
    monkeypatch.setattr(lookups, "_OTHER_S", 60.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_worker_that_hangs_delays_no_device_of_another_one(one, two, owners, hanging):
    two.put(2, record("d", 1))
    owners[1] = hanging
    assert one.get("/features/d")[0] == 200


def test_while_a_worker_hangs_others_are_told_at_once(one, tmp_path, owners, hanging, monkeypatch):
    monkeypatch.setattr(lookups, "_HANGS_MS", 0.0)
    three = Worker(tmp_path / "three", owners)
    three.own(2)
    three.put(2, record("d", 1))
    owners[1] = hanging
    assert one.get("/features/d")[0] == 200  # its question to the other one stays open
    status, body = one.get("/features/nobody")
    assert (status, f"{hanging} gave no answer" in body["error"]) == (503, True)
    three.close()


def test_nothing_is_said_where_somebody_gives_no_answer(one, owners):
    assert one.get("/features/d")[0] == 503  # nobody is known
    owners.update({1: "127.0.0.1:1", 2: one.address})
    status, body = one.get("/features/d")
    assert (status, "127.0.0.1:1 gave no answer" in body["error"]) == (503, True)


def test_a_worker_of_another_group_is_not_answered(one, two):
    one.put(0, record("d", 1))
    header = {"X-Walle-Forwarded": "other"}
    assert one.get("/features/d", header)[0] == 421
    header = {"X-Walle-Forwarded": "g"}
    assert one.get("/features/d", header)[0] == 200
    assert two.get("/features/d", header) == (
        404,
        {"error": "no features of device 'd'", "partitions": [1, 2]},
    )


def test_a_table_that_lacks_something_and_a_lost_lease_are_503(one, two):
    one.put(0, record("d", 1))
    one.tables.expect(0, 5, 5)
    assert one.get("/features/d")[0] == two.get("/features/d")[0] == 503
    assert two.get("/features/nobody")[0] == 503
    one.tables.expect(0, 0, 5)
    assert one.get("/healthz")[1]["status"] == "ok"
    one.tables.held_until(0)
    assert one.get("/features/d")[0] == 503
    status, shown = one.get("/healthz")
    assert (status, shown["status"], shown["partitions"]) == (503, "cut off", {})


def test_what_is_no_device_or_no_page_is_said(one):
    assert one.get("/features/")[0] == 400
    assert one.get("/features/%00")[0] == 400
    assert one.get("/features/%FF")[0] == 400
    assert one.get("/elsewhere")[0] == 404


@pytest.mark.parametrize("host", ["127.0.0.1", "203.0.113.1", "no such host"])
def test_an_address_that_cannot_be_had_is_said(one, host):
    with pytest.raises(MetricsAddressError, match="give another --web-port or --web-host"):
        serve_look_ups(host, one.port, LookUps(one.tables, None, 0, dict))


def test_metrics_say_what_was_merged_and_what_is_left(one):
    def scraped():
        with closing(HTTPConnection(one.address, timeout=30)) as connection:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            return answer.read().decode()

    one.put(0, record("d", 1))
    place = one.tables.health()["partitions"]["0"]["next_offset"]
    one.tables.seen_end(0, place + 6)
    text = scraped()
    assert "walle_cloud_up 1" in text
    assert 'walle_cloud_merged{what="features"} 1' in text
    assert 'walle_cloud_lag_records{partition="0"} 6' in text
    assert 'walle_cloud_ready{partition="0"} 1' in text
    one.tables.held_until(0)
    text = scraped()
    assert "walle_cloud_up 0" in text
    assert 'partition="0"' not in text
