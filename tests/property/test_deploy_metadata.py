"""Whatever a file server makes of the signed metadata: a device learns the truth, or nothing."""

import os
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tuf.api.exceptions import DownloadHTTPError

from walle_deploy.device.files_metadata import VerifiedMetadata
from walle_deploy.trust.repository import NewTarget, TrustedRepository
from walle_stream.errors import IntegrityError, ServiceUnreachableError

NAMES = ["a/b/v1/x", "a/b/v2/x"]


class Server:
    """Files by name, as they are served."""

    def __init__(self, folder):
        self.files = {path.name: path.read_bytes() for path in folder.iterdir()}
        self.true = dict(self.files)

    def chunks(self, url, *_):
        data = self.files.get(url.rpartition("/")[2])
        if data is None:
            raise DownloadHTTPError("no such file", 404)
        yield 0, data


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repository")
    repository = TrustedRepository.create(folder, bin_bits=1)
    root = repository.root()
    for name in NAMES:
        repository.add([NewTarget(name, name.encode(), {"task": "a/b"})])
        repository.rotate("timestamp")
    return Server(folder / "public" / "metadata"), root, tmp_path_factory.mktemp("device")


@pytest.fixture
def _no_power_cut(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


def altered(draw, files):
    name = draw(st.sampled_from(sorted(files)))
    data = files[name]
    how = draw(st.sampled_from(["flip", "cut", "other", "gone", "twice"]))
    if how == "flip":
        at = draw(st.integers(0, len(data) - 1))
        return name, data[:at] + bytes([data[at] ^ 1 << draw(st.integers(0, 7))]) + data[at + 1 :]
    if how == "cut":
        return name, data[: draw(st.integers(0, len(data) - 1))]
    if how == "other":
        return name, files[draw(st.sampled_from(sorted(files)))]
    return name, None if how == "gone" else data + data


@pytest.mark.usefixtures("_no_power_cut")
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_altered_metadata_says_the_truth_or_is_refused(published, data):
    server, root, folder = published
    server.files = dict(server.true)
    for _ in range(data.draw(st.integers(1, 2))):
        name, content = altered(data.draw, server.true)
        server.files[name] = content
    server.files = {name: content for name, content in server.files.items() if content is not None}
    shutil.rmtree(folder, ignore_errors=True)
    for _ in range(2):  # what was refused has left nothing behind that a second look believes
        try:
            found = VerifiedMetadata(folder, root, server).look_up("x:/metadata/", NAMES)
        except (IntegrityError, ServiceUnreachableError):
            continue
        assert {name: (each.length, each.custom) for name, each in found.items()} == {
            name: (len(name), {"task": "a/b"}) for name in NAMES
        }
    server.files = server.true
    assert len(VerifiedMetadata(folder, root, server).look_up("x:/metadata/", NAMES)) == 2
