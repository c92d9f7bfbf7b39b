import pytest

from walle_deploy.policy.versions import parse_memory_range, parse_version_range, try_version


def test_versions_are_ordered_as_semantic_versioning_says():
    ordered = [
        "6.9",
        "7.0.0-alpha",
        "7.0.0-alpha.1",
        "7.0.0-alpha.beta",
        "7.0.0-beta.2",
        "7.0.0-beta.11",
        "7",
        "7.0.1",
        "7.1",
        "7.10",
        "7.10.0.1",
        "v10",
    ]
    keys = [try_version(each) for each in ordered]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)
    assert try_version("7.1") == try_version("v7.1.0.0+build.5")


@pytest.mark.parametrize("text", ["", "x", "7.", ".7", "7.1-", "7..1", "1" * 19, "7.1\n"])
def test_what_is_no_version_is_none(text):
    assert try_version(text) is None


@pytest.mark.parametrize(
    ("range_", "inside", "outside"),
    [
        (">=7.1 <8", ["7.1", "7.99.3", "8.0.0-beta"], ["7.0.9", "8", "7.1.0-rc.1"]),
        (">= 7.1, < 8", ["7.5"], ["8"]),
        ("7.1", ["7.1.0"], ["7.1.1"]),
        ("!=7.1 >7", ["7.2"], ["7.1", "7"]),
        ("<=7", ["7.0"], ["7.0.1"]),
    ],
)
def test_a_range_holds_what_all_its_comparisons_hold(range_, inside, outside):
    holds = parse_version_range(range_)
    assert all(holds(try_version(each)) for each in inside)
    assert not any(holds(try_version(each)) for each in outside)


@pytest.mark.parametrize("text", [">", "7 foo", ">=7 ||", "=>7", "", "  "])
def test_what_is_no_range_is_refused(text):
    with pytest.raises(ValueError, match="expected"):
        parse_version_range(text)


def test_memory_is_compared_in_bytes():
    holds = parse_memory_range(">= 4GiB <8GiB")
    assert [holds(mb) for mb in (4_095, 4_096, 8_191, 8_192)] == [False, True, True, False]
    for text in ("4GiB", ">4 apples", ">=", ">=4GiB x"):
        with pytest.raises(ValueError, match="expected"):
            parse_memory_range(text)
