from base64 import urlsafe_b64decode, urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walle_deploy.model.receipts import (
    AHEAD_MS,
    VALID_MS,
    Receipt,
    ReceiptKeys,
    new_key,
    peek,
)
from walle_stream.errors import IntegrityError, ReceiptError

NOW_MS = 1_800_000_000_000
KEYS = ReceiptKeys.create()
RECEIPT = Receipt("d-1", "shop/ipv", "v2", "ipv-v2", "new", NOW_MS)
TEXT = st.text(st.characters(codec="utf-8"), max_size=40)


def problem_of(token, keys=KEYS, now_ms=NOW_MS):
    with pytest.raises(ReceiptError) as found:
        keys.read(token, now_ms)
    return found.value.problem


@given(
    st.builds(
        Receipt,
        device=TEXT,
        task=TEXT,
        version=TEXT,
        release=TEXT,
        group=st.sampled_from(["", "new", "control"]),
        issued_ms=st.just(NOW_MS),
    )
)
def test_what_was_issued_is_read(receipt):
    token = KEYS.issue(receipt)

    assert KEYS.read(token, NOW_MS) == peek(token)[1] == receipt
    assert KEYS.has([peek(token)[0]])
    assert token.isascii()
    assert token.replace("-", "").replace("_", "").isalnum()


@given(st.text(max_size=200) | st.binary(max_size=200).map(urlsafe_b64encode).map(bytes.decode))
def test_what_is_no_receipt_is_forged(token):
    assert problem_of(token) == "forged"


@given(st.data())
def test_any_changed_byte_is_found(data):
    made = bytearray(urlsafe_b64decode(KEYS.issue(RECEIPT) + "=="))
    place = data.draw(st.integers(0, len(made) - 1))
    made[place] ^= data.draw(st.integers(1, 255))

    assert problem_of(urlsafe_b64encode(bytes(made)).decode()) == "forged"


def test_another_fleets_key_is_forged():
    assert problem_of(ReceiptKeys.create().issue(RECEIPT)) == "forged"


def test_a_key_of_the_same_id_in_another_fleet_is_forged():
    name, _ = first = new_key()
    other = ReceiptKeys([(name, new_key()[1])])

    assert problem_of(other.issue(RECEIPT), ReceiptKeys([first])) == "forged"


def test_a_receipt_ends_after_seven_days():
    token = KEYS.issue(RECEIPT)

    assert KEYS.read(token, NOW_MS + VALID_MS) == RECEIPT
    assert problem_of(token, now_ms=NOW_MS + VALID_MS + 1) == "expired"


def test_a_receipt_from_the_future_is_refused():
    token = KEYS.issue(RECEIPT)

    assert KEYS.read(token, NOW_MS - AHEAD_MS) == RECEIPT
    assert problem_of(token, now_ms=NOW_MS - AHEAD_MS - 1) == "ahead"


def test_the_first_key_signs_and_all_are_believed():
    old, new = new_key(), new_key()
    rotated = ReceiptKeys([new, old])

    assert rotated.read(ReceiptKeys([old]).issue(RECEIPT), NOW_MS) == RECEIPT
    assert ReceiptKeys([new]).read(rotated.issue(RECEIPT), NOW_MS) == RECEIPT
    assert problem_of(ReceiptKeys([old]).issue(RECEIPT), ReceiptKeys([new])) == "forged"


def test_keys_are_told_apart_by_their_ids():
    name, _ = first = new_key()
    keys = ReceiptKeys([first, new_key()])

    assert keys.has([])
    assert keys.has([name, name])
    assert not keys.has([name, "other"])


@pytest.mark.parametrize("keys", [[], [("a", b"")], [new_key(), ("b", b"x" * 31)]])
def test_keys_that_are_none_are_refused(keys):
    with pytest.raises(ValueError, match="32 bytes"):
        ReceiptKeys(keys)


def test_a_receipt_says_whose_it_is():
    # who takes reports compares these with the report: a receipt of another device, task or
    # version is true, and of no use there
    found = KEYS.read(KEYS.issue(RECEIPT), NOW_MS)

    assert (found.device, found.task, found.version) == ("d-1", "shop/ipv", "v2")


def test_a_receipt_that_is_none_is_a_failure_of_integrity():
    with pytest.raises(IntegrityError) as found:
        KEYS.read("", NOW_MS)

    assert found.value.exit_code == 17
