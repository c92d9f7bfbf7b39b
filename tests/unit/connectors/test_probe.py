"""Brokers that do not answer, or whose TLS and ours do not meet, before kafka-python is asked."""

import shutil
import socket
import ssl
import subprocess
import threading

import pytest

from walle_connectors.brokers import Connection
from walle_connectors.kafka.drivers import open_cluster
from walle_connectors.probe import probe_brokers
from walle_stream.errors import BrokerUnreachableError

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes certificates")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for ca in ("ca", "other"):
        names = ["-keyout", f"{ca}.key", "-out", f"{ca}.pem", "-subj", f"/CN={ca}"]
        # Python refuses one that does not say that it may sign
        names += ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        openssl("req", "-x509", *new, *names, "-days", "2")
    # and one that does not name its issuer's key
    (folder / "san").write_text("authorityKeyIdentifier=keyid\nsubjectAltName=IP:127.0.0.1\n")
    for name, ca, dates in (
        ("server", "ca", ["-days", "2"]),
        ("client", "ca", ["-days", "2"]),
        ("stranger", "other", ["-days", "2"]),
        ("expired", "ca", ["-days", "-1"]),
    ):
        openssl("req", *new, "-keyout", f"{name}.key", "-out", "csr", "-subj", f"/CN={name}")
        by = ["-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial", "-extfile", "san"]
        openssl("x509", "-req", "-in", "csr", *by, "-out", f"{name}.pem", *dates)
    return folder


class Server:
    """Accepts connections, with TLS or without, until it is closed."""

    def __init__(self, context=None):
        self._context = context
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while True:
            peer, _ = self._socket.accept()
            with peer:
                peer.settimeout(10)
                if peer.recv(1, socket.MSG_PEEK) == b"!":
                    return
                if self._context is not None:
                    self._shake_hands(peer)

    def _shake_hands(self, peer):
        try:
            with self._context.wrap_socket(peer, server_side=True) as secured:
                secured.recv(1)
        except OSError:
            pass

    def close(self):
        with socket.create_connection(self.address.split(":")) as last:
            last.sendall(b"!")
            self._thread.join()
        self._socket.close()


@pytest.fixture
def serve(folder):
    servers = []

    def make(certificate=None, *, is_mutual=False):
        context = None
        if certificate:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca.pem")
            context.load_cert_chain(folder / f"{certificate}.pem", folder / f"{certificate}.key")
            context.verify_mode = ssl.CERT_REQUIRED if is_mutual else ssl.CERT_NONE
        servers.append(Server(context))
        return servers[-1].address

    yield make
    for server in servers:
        server.close()


def connection(folder, address, ca="ca", own=None):
    tls = {"ca": folder / f"{ca}.pem"} if ca else None
    if own:
        tls |= {"cert": folder / f"{own}.pem", "key": folder / f"{own}.key"}
    return Connection.model_validate({"brokers": address, "tls": tls})


def test_a_broker_that_answers_is_one(folder, serve):
    probe_brokers(connection(folder, serve(), ca=None), 1_000)
    probe_brokers(connection(folder, serve("server")), 1_000)
    probe_brokers(connection(folder, serve("server", is_mutual=True), own="client"), 1_000)


@pytest.mark.parametrize(
    ("driver", "library"), [("kafka-python", "kafka"), ("confluent", "confluent_kafka")]
)
def test_a_key_that_is_encrypted_is_named_and_nobody_is_asked(folder, serve, driver, library):
    pytest.importorskip(library)
    command = ["openssl", "pkey", "-aes256", "-passout", "pass:x", "-in", folder / "client.key"]
    subprocess.run([*command, "-out", folder / "hidden.key"], check=True, capture_output=True)
    shutil.copy(folder / "client.pem", folder / "hidden.pem")
    given = connection(folder, serve("server", is_mutual=True), own="hidden")
    given = given.model_copy(update={"driver": driver})
    with pytest.raises(BrokerUnreachableError, match="`key` is encrypted"):
        open_cluster(given).brokers()


def test_one_of_several_is_enough(folder, serve):
    given = Connection.model_validate({"brokers": ["127.0.0.1:9", serve()]})
    probe_brokers(given, 1_000)


def test_none_that_answers_is_said_with_all_addresses():
    given = Connection.model_validate({"brokers": ["127.0.0.1:9", "127.0.0.1:10"]})
    with pytest.raises(BrokerUnreachableError, match=r"127\.0\.0\.1:9: .*; 127\.0\.0\.1:10: "):
        probe_brokers(given, 1)


@pytest.mark.parametrize(
    ("server", "ca", "own", "words"),
    [
        ("server", "other", None, "(self-signed|local issuer) certificate"),
        ("expired", "ca", None, "certificate has expired"),
    ],
)
def test_a_certificate_that_is_not_trusted_is_named(folder, serve, server, ca, own, words):
    with pytest.raises(BrokerUnreachableError, match=f".*{words}"):
        probe_brokers(connection(folder, serve(server), ca, own), 5_000)


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (None, "we show none: set `tls.cert` and `tls.key`"),
        ("stranger", "may be signed by an authority that it does not know"),
        ("expired", r"ours \(`tls.cert`\) expired on 20"),
    ],
)
def test_a_broker_that_refuses_ours_is_named(folder, serve, own, words):
    address = serve("server", is_mutual=True)
    with pytest.raises(BrokerUnreachableError, match=f"it refuses us: .*{words}"):
        probe_brokers(connection(folder, address, own=own), 5_000)


def test_our_own_certificate_that_is_over_is_named(folder, serve):
    given = connection(folder, serve("server", is_mutual=True), own="expired")
    over = r"it refuses us: .*, ours \(`tls\.cert`\) expired on 20\d\d-"
    with pytest.raises(BrokerUnreachableError, match=over):
        probe_brokers(given, 5_000)
    with pytest.raises(BrokerUnreachableError, match=r"refuses us: .*, ours .* expired on"):
        probe_brokers(given)


def test_files_that_cannot_be_used_are_named(folder, serve, tmp_path):
    address = serve("server")
    with pytest.raises(BrokerUnreachableError, match=r"there is no file .*absent\.pem"):
        probe_brokers(connection(folder, address, "absent"), 1_000)
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(BrokerUnreachableError, match="cannot be used"):
        probe_brokers(connection(tmp_path, address), 1_000)
