import shutil
import ssl

import pytest

from walle_stream.errors import BrokerError
from walle_stream.testing.broker import Certificates

needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl is not installed"
)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("made") / "certificates")


@needs_openssl
def test_only_what_the_server_is_given_can_be_read_by_others(certificates):
    given = sorted(path.name for path in certificates.server_folder.iterdir())
    assert given == ["ca.pem", "server.p12"]
    keys = list(certificates.server_folder.parent.glob("*.key"))
    assert keys
    assert all(key.stat().st_mode & 0o77 == 0 for key in keys)


@needs_openssl
def test_python_takes_a_clients_files(certificates):
    files = certificates.client("phone-1")
    assert certificates.client("phone-1") == files
    context = ssl.create_default_context(cafile=files.ca)
    context.load_cert_chain(files.cert, files.key)
    assert len(context.get_ca_certs()) == 1


@needs_openssl
def test_a_stranger_has_another_ca(certificates):
    assert certificates.stranger("s").ca.read_bytes() != certificates.ca.read_bytes()


def test_without_openssl_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BrokerError, match="install it"):
        Certificates(tmp_path / "certificates")
