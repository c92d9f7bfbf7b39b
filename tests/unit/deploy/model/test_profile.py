import pytest

from walle_deploy.model.profile import (
    DeviceProfile,
    decode_profile,
    encode_profile,
    with_versions,
)
from walle_stream.errors import ProfileError


def test_a_profile_comes_back_as_it_was():
    profile = DeviceProfile("d-1", "shop", "7.12.0", "android", "14", "cpython-314", "high", "x", 8)
    profile = with_versions(profile, {"shop/ipv": "v2"})
    assert decode_profile(encode_profile(profile)) == profile
    assert decode_profile(encode_profile(profile).encode()) == profile


@pytest.mark.parametrize(
    "value",
    [
        *("", "e30", "bm8", "%%%", "\u00e9", "a", "W10", "A" * 8_193),
        "eyJkZXZpY2UiOiIifQ",  # an empty id
        "eyJkZXZpY2UiOiJkIiwgIm1lbW9yeV9tYiI6IC0xfQ",
    ],
)
def test_what_is_no_profile_is_refused_in_one_line(value):
    with pytest.raises(ProfileError) as caught:
        decode_profile(value)
    assert "\n" not in str(caught.value)


def test_a_device_cannot_take_the_id_of_a_user():
    with pytest.raises(ProfileError, match="cannot begin with 'user:'"):
        decode_profile(encode_profile(DeviceProfile("user:ann")))


@pytest.mark.parametrize("value", ["", b""])
def test_a_header_that_is_not_there_is_said_to_be_missing(value):
    with pytest.raises(ProfileError, match="the header walle-profile is missing"):
        decode_profile(value)


def test_a_profile_that_no_header_holds_is_refused():
    with pytest.raises(ProfileError, match="uninstall unused tasks"):
        encode_profile(DeviceProfile("d", tasks={f"s/t{n}": "v1" for n in range(257)}))
