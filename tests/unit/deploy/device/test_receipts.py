import logging

import pytest

from walle_deploy.device.receipts import ReceiptBook
from walle_deploy.model.held import HOUR_MS, HeldReceipt, HeldReceipts
from walle_deploy.model.receipts import Receipt, ReceiptKeys, peek
from walle_stream.ports import Proof

KEYS = ReceiptKeys.create()
HOUR = 500_000
NONE = Proof()
KEY, _ = peek(KEYS.issue(Receipt("", "", "")))


def token(version="v1", task="s/t", release="", group="", hour=HOUR, device="d"):
    return KEYS.issue(Receipt(device, task, version, release, group, hour * HOUR_MS + 5))


@pytest.fixture
def book(tmp_path):
    return lambda: ReceiptBook(tmp_path / "receipts", ["d", "d-2"])


def test_what_is_kept_is_shown_through_restarts(book):
    first = book()
    assert first("d", "s/t", "v1") == NONE
    plain, new = token(), token("v2", release="r", group="new")
    first.keep("d", [plain, new])
    for each in (first, book()):
        assert each("d", "s/t", "v1") == Proof(plain)
        assert each("d", "s/t", "v2") == Proof(new, "r", "new")
        assert each("d", "s/u", "v1") == each("d-2", "s/t", "v1") == NONE


def test_a_device_says_what_it_holds_in_a_few_bytes(book):
    made = book()
    assert made.held("d", {}) == HeldReceipts()
    assert made.held("d", {"s/t": "v1"}) == HeldReceipts(0, {"s/t": HeldReceipt()})
    made.keep("d", [token(), token(task="s/u", hour=HOUR - 3)])
    made.keep("d", [token("v2", "s/v", "r", "control", HOUR + 1)])
    versions = {"s/t": "v1", "s/u": "v1", "s/v": "v2", "s/w": "v1"}
    others = {"s/v": HeldReceipt(HOUR + 1, "r", "control"), "s/w": HeldReceipt()}
    assert made.held("d", versions) == HeldReceipts(HOUR - 3, others, [KEY])
    # another version than the one that it has a receipt for
    assert made.held("d", {"s/t": "v3"}).others == {"s/t": HeldReceipt()}


def test_a_newer_receipt_takes_the_place_of_the_one_for_its_version(book):
    made = book()
    made.keep("d", [token(group="control", release="r")])
    made.keep("d", [token(hour=HOUR + 1)])
    assert made.held("d", {"s/t": "v1"}) == HeldReceipts(HOUR + 1, {}, [KEY])


def test_the_same_once_more_is_not_written(book, tmp_path):
    made = book()
    made.keep("d", [token()])
    (path,) = (tmp_path / "receipts").iterdir()
    path.unlink()
    made.keep("d", [token()])
    assert not path.exists()
    for other in (
        token(hour=HOUR + 1),
        token(release="r"),
        token("v2"),
        ReceiptKeys.create().issue(Receipt("d", "s/t", "v2", "", "", HOUR * HOUR_MS)),
    ):
        made.keep("d", [other])
        assert path.exists()
        path.unlink()


def test_what_it_holds_is_bounded(book):
    made = book()
    for number in range(9):
        made.keep("d", [token(f"v{number}")])
    assert [made("d", "s/t", f"v{n}") == NONE for n in range(9)] == [True] * 5 + [False] * 4
    made.keep("d", [token(task=f"s/t{n}") for n in range(600)])
    assert sum(made("d", f"s/t{n}", "v1") != NONE for n in range(600)) == 512


@pytest.mark.parametrize("data", [b"", b"{", b'{"device": "d", "receipts": ["x"]}'])
def test_a_file_that_cannot_be_read_costs_a_request(book, tmp_path, data):
    book().keep("d", [token()])
    (path,) = (tmp_path / "receipts").iterdir()
    path.write_bytes(data)
    made = book()
    assert made.held("d", {"s/t": "v1"}) == HeldReceipts(0, {"s/t": HeldReceipt()})
    made.keep("d", [token()])
    assert book()("d", "s/t", "v1") != NONE


def test_a_disk_that_takes_nothing_leaves_them_in_memory(book, tmp_path, caplog):
    (tmp_path / "receipts").write_text("no folder")
    made = book()
    with caplog.at_level(logging.WARNING):
        made.keep("d", [token()])
    assert made("d", "s/t", "v1") != NONE
    assert [each.device_id for each in caplog.records] == ["d"]


def test_devices_of_others_have_nothing_to_show_and_take_no_room(book):
    made = book()
    for number in range(100):
        assert made(f"other-{number}", "s/t", "v1") == NONE
    assert made._held == {}
