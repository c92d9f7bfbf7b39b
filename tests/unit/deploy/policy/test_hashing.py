from itertools import combinations

import pytest

from walle_deploy.policy.hashing import id_hash, is_within, salt_key, share_limit

HASHES = [id_hash(f"device-{number}") for number in range(20_000)]


def inside(salt, percent):
    key, limit = salt_key(salt), share_limit(percent)
    return {number for number, each in enumerate(HASHES) if is_within(each, key, limit)}


def test_the_hash_is_the_same_on_every_machine_for_ever():
    assert id_hash("device-1") == 0xEB6D4E8D99A317AB
    assert salt_key("release-1") == 0x812B5B3CD6D55A2D


@pytest.mark.parametrize("percent", [1, 5, 20, 50])
def test_a_share_is_as_large_as_it_says(percent):
    expected = len(HASHES) * percent / 100
    # five standard deviations
    assert abs(len(inside("r", percent)) - expected) < 5 * (expected * (1 - percent / 100)) ** 0.5


def test_other_salts_take_other_devices():
    shares = [inside(f"r-{number}", 10) for number in range(12)]
    for one, other in combinations(shares, 2):
        # 10 % of 10 % of 20,000 devices, five standard deviations
        assert abs(len(one & other) - 200) < 75
