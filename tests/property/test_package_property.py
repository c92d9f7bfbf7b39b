"""Hostile packages: whatever happened to the bytes, a reader returns or refuses."""

import hashlib
import io
import random
import zipfile
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from walle_stream.errors import PackageError
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.package.build import build_package
from walle_stream.vm.package.reader import PackagedTask, read_package

pytestmark = pytest.mark.vm

MUTATIONS = 500
SOURCE = "import struct\n\ndef run(ctx, page):\n    ctx.emit({'n': len(page.events)})\n"
LIMITS = RunLimits(1_000, 10, 5, 2_000, 2, 0, 9_999)
TASK = PackagedTask("t", "1", 1, "t.py", (("page_exit",),), ("item",), {"k": [1]}, LIMITS)


@pytest.fixture(scope="module")
def data():
    return build_package(TASK, SOURCE, {"a.txt": b"hello " * 50})


def mutated(numbers, data):
    """One to three bytes flipped, inserted or cut out, or the file cut short."""
    made = bytearray(data)
    for _ in range(numbers.randint(1, 3)):
        at = numbers.randrange(max(len(made), 1))
        match numbers.randrange(4):
            case 0:
                made[at : at + 1] = bytes([numbers.randrange(256)])
            case 1:
                made[at:at] = numbers.randbytes(numbers.choice((1, 4, 100)))
            case 2:
                del made[at : at + numbers.choice((1, 4, 100))]
            case _ if numbers.random() < 0.2:
                del made[at:]
            case _:
                made[at] ^= 1 << numbers.randrange(8)
    return bytes(made)


def sealed(data):
    return data[:-64] + hashlib.sha256(data[:-64]).hexdigest().encode()


def contents(package):
    return package.manifest, package.parts


@pytest.mark.parametrize("seed", range(4))
def test_a_package_with_altered_bytes_is_refused(data, seed):
    numbers = random.Random(seed)
    whole = contents(read_package(data))
    for _ in range(MUTATIONS):
        made = mutated(numbers, data)
        try:
            found = read_package(made)
        except PackageError as error:
            text = str(error)
        else:
            text = "package: "
            assert contents(found) == whole
            assert made == data
        assert text.startswith("package: ")
        assert "\n" not in text


@pytest.mark.parametrize("seed", range(4))
def test_an_altered_package_that_is_sealed_anew_is_refused_or_the_same(data, seed):
    """Without the seal the hashes of the parts have to find it."""
    numbers = random.Random(seed)
    whole = read_package(data).parts
    for _ in range(MUTATIONS):
        made = sealed(mutated(numbers, data))
        with suppress(PackageError):
            assert read_package(made).parts == whole


names = st.sampled_from(["manifest.json", "resources/a.txt", "code/x/script.bin", "", "/", "é"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    members=st.lists(st.tuples(names, st.binary(max_size=40)), max_size=5, unique_by=lambda m: m[0])
)
def test_a_zip_of_anything_is_refused(members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content)
        archive.comment = b"walle-sha256:" + bytes(64)
    with pytest.raises(PackageError):
        read_package(sealed(stream.getvalue()))


@given(st.binary(max_size=400), st.booleans())
def test_bytes_that_are_no_package_are_refused(given_bytes, looks_like_one):
    end = b"PK\x05\x06" + given_bytes[:18].ljust(18, b"\0") + b"walle-sha256:" + bytes(64)
    with pytest.raises(PackageError):
        read_package(b"PK\x03\x04" + given_bytes + end if looks_like_one else given_bytes)
