from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from walle_deploy.model.receipts import Receipt, peek
from walle_deploy.store.receipt_keys import LOOK_MS, StoredReceiptKeys, read_open_mode
from walle_stream.errors import IntegrityError, ReceiptError, ServiceUnreachableError

HOUR = 3_600_000
DAY = 24 * HOUR
MINUTE = 60_000


class World:
    """A store whose clock is set, and services that look at it."""

    def __init__(self):
        self.now, self.monotonic = 100 * DAY, 5.0
        self.rows, self.is_away, self.looks, self.names = {}, False, 0, []

    @contextmanager
    def reading(self):
        if self.is_away:
            raise ServiceUnreachableError("away")
        self.looks += 1
        yield self

    writing = reading

    def now_ms(self):
        return self.now

    def releases(self):
        return [SimpleNamespace(release_id=name) for name in self.names]

    def snapshot(self, kind, name):
        return self.rows.get((kind, name))

    def put_snapshot(self, kind, name, data):
        self.rows[kind, name] = data

    def service(self, **how):
        return StoredReceiptKeys(self, lambda: self.monotonic, **how)

    def go_on(self, ms, *services, set_to=None):
        self.monotonic += ms
        self.now = self.now + ms if set_to is None else set_to
        for each in services:
            each.refresh()


def issued(service, **more):
    return service.keys.issue(Receipt("d", "s/t", "v1", issued_ms=service.now_ms(), **more))


@pytest.fixture
def world():
    return World()


def test_all_services_of_a_store_believe_each_other(world):
    one, other = world.service(), world.service()
    token = issued(one)
    assert other.keys.read(token, other.now_ms()).device == "d"
    assert world.service().keys.read(token, world.now).device == "d"  # one that starts later


def test_a_key_signs_for_a_day_and_is_believed_for_eight_more(world):
    service, tokens = world.service(), []
    for _ in range(20):
        tokens.append((issued(service), world.now))
        world.go_on(DAY, service)
        for token, at in tokens:
            if world.now - at <= 7 * DAY:
                assert service.keys.read(token, world.now).issued_ms == at
            else:
                with pytest.raises(ReceiptError):
                    service.keys.read(token, world.now)


def test_a_new_key_signs_when_all_services_know_it(world):
    one, late = world.service(), world.service()
    late.refresh()
    world.go_on(DAY, one)  # makes a key; the other has not looked since
    before = issued(one)
    assert late.keys.read(before, world.now).device == "d"
    world.go_on(MINUTE, one, late)
    token = issued(one)
    assert late.keys.read(token, world.now).device == "d"
    assert peek(token)[0] != peek(before)[0]


def test_the_clock_is_that_of_the_store(world):
    service = world.service()
    service.refresh()
    world.monotonic += 1_000  # between two looks
    assert service.now_ms() == world.now + 1_000
    world.go_on(LOOK_MS, service, set_to=world.now - DAY)
    assert service.now_ms() == world.now


@pytest.mark.parametrize("wrong", [-400 * DAY, -2 * DAY, 2 * DAY, 400 * DAY])
def test_a_clock_that_was_wrong_leaves_keys_that_rotate(world, wrong):
    world.now += wrong
    service = world.service()
    issued(service)
    world.go_on(HOUR, service, set_to=world.now - wrong)
    token = issued(service)
    assert service.keys.read(token, world.now).device == "d"
    for _ in range(3):
        world.go_on(DAY, service)
        assert service.keys.read(token, world.now).device == "d"
    ids = world.rows["receipts", "keys"]
    world.go_on(DAY, service)
    assert world.rows["receipts", "keys"] != ids


def test_a_store_that_is_away_leaves_the_keys_in_use(world):
    service = world.service()
    token, looks = issued(service), world.looks
    service.refresh()
    assert world.looks == looks  # it looks seldom
    world.is_away = True
    with pytest.raises(ServiceUnreachableError):
        world.go_on(LOOK_MS, service)
    assert service.keys.read(token, service.now_ms()).device == "d"


def test_a_store_that_was_restored_has_not_the_keys_of_since_then(world):
    service = world.service()
    service.refresh()
    saved = dict(world.rows)
    world.go_on(DAY, service)
    world.go_on(MINUTE, service)
    key, _ = peek(issued(service))
    world.rows = saved
    restored = world.service()
    assert not restored.keys.has([key])  # a device that names it is given another receipt


@pytest.mark.parametrize("data", [b"", b"{}", b'[{"id": 1}]'])
def test_keys_that_were_altered_are_refused(world, data):
    world.rows["receipts", "keys"] = data
    with pytest.raises(IntegrityError, match="altered"):
        world.service().refresh()


@pytest.mark.parametrize("moved_ms", [-DAY, 0, DAY])
def test_a_release_that_was_there_in_the_open_mode_is_marked_whatever_the_clock_does(
    world, moved_ms
):
    service, world.names = world.service(is_open=True), ["r"]
    begun_ms = world.now
    world.go_on(LOOK_MS, service)
    world.go_on(LOOK_MS, service, set_to=begun_ms + moved_ms)
    world.names = ["r", "s"]
    world.go_on(LOOK_MS, service)
    world.names = []
    world.go_on(LOOK_MS, service, set_to=begun_ms + 9 * LOOK_MS)
    mode = read_open_mode(world)
    assert [mode.includes(name, begun_ms + 9 * DAY) for name in "rst"] == [True, True, False]
    # one that began after the last look
    assert mode.includes("t", world.now + 1)


def test_a_mark_of_the_open_mode_that_was_altered_is_named(world):
    world.rows["receipts", "open"] = b"1234"
    with pytest.raises(IntegrityError, match="the record of releases in the open mode"):
        read_open_mode(world)
