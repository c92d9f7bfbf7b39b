import msgspec
import pytest

from walle_deploy.model.pushes import PushedFile
from walle_deploy.model.releases import VersionFiles
from walle_deploy.release.audit import digest as digest_of

SHARED = PushedFile("s/t/v/t.walle", "targets/ab/x", "0" * 64, 10)
OWN = PushedFile("s/t/v/for/d/x", "exclusive/ab/x", "1" * 64, 10, "exclusive", "x")


@pytest.mark.parametrize(
    ("files", "digest"),
    [
        # made before there was a field for interpreters; audit logs have such digests
        (VersionFiles(()), "52c67ccf31b47333d614f4ed400851d670307427ba84976af07e0e31521ccb2f"),
        (
            VersionFiles((SHARED,)),
            "4d44b51032f9313037d0a0c9e5889357ad18de2bf64d0489cdbab960402d1b57",
        ),
        (
            VersionFiles((SHARED,), {"d": (OWN,)}),
            "bd40da8eb59b048fff85e0c72a1856a1d7533189438305ccba770e0891fec09e",
        ),
    ],
)
def test_digests_of_versions_that_name_no_interpreters_stay(files, digest):
    assert digest_of(files) == digest
    stored = msgspec.json.encode(files)
    assert digest_of(msgspec.json.decode(stored, type=VersionFiles)) == digest


def test_interpreters_are_part_of_what_is_stored_and_of_the_digest():
    files = VersionFiles((SHARED,), {}, ("cpython-313", "cpython-314"))
    assert msgspec.json.decode(msgspec.json.encode(files), type=VersionFiles) == files
    assert digest_of(files) != digest_of(VersionFiles((SHARED,)))
