"""Sessions of TLS connections against a server of the standard library."""

import os
import shutil
import socket
import ssl
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest

from walle_connectors import probe
from walle_connectors.brokers import Connection
from walle_connectors.tls_sessions import TlsSessions, shared_sessions
from walle_stream.testing.broker import Certificates

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes certificates")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("tls") / "certificates")


class Server:
    """Asks clients for certificates, answers a byte with a byte, until it is closed."""

    def __init__(self, folder, version=ssl.TLSVersion.TLSv1_3):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.maximum_version = version
        self.context.load_cert_chain(folder / "server.pem", folder / "server.key")
        self.context.load_verify_locations(folder / "ca.pem")
        self.context.verify_mode = ssl.CERT_REQUIRED
        self.breaks = False
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = self._socket.getsockname()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        with suppress(OSError):
            while True:
                peer, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer):
        with peer, suppress(OSError):
            if self.breaks:
                peer.recv(1)
                return
            with self.context.wrap_socket(peer, server_side=True) as safe:
                while data := safe.recv(1):
                    safe.sendall(data)

    def close(self):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def server(certificates, request):
    with closing(Server(certificates.server_folder.parent, request.param)) as server:
        yield server


@pytest.fixture
def files(certificates, tmp_path):
    """Of a client, in a folder of its own."""
    given = certificates.client("device")
    return [Path(shutil.copy2(each, tmp_path)) for each in (given.ca, given.cert, given.key)]


def connect(sessions, server):
    plain = socket.create_connection(server.address, 10)
    return sessions.wrap_socket(plain, server_hostname="127.0.0.1")


def talk(connection):
    connection.sendall(b"?")
    assert connection.recv(1) == b"?"
    return connection


def visit(sessions, server):
    with talk(connect(sessions, server)) as connection:
        return connection.session_reused


def test_the_second_connection_goes_on_with_the_first_ones_session(server, files):
    sessions = TlsSessions(*files)
    assert [visit(sessions, server) for _ in range(3)] == [False, True, True]
    assert (sessions.full_count, sessions.resumed_count) == (1, 2)


def test_a_session_is_there_while_its_connection_lives(server, files):
    sessions = TlsSessions(*files)
    with talk(connect(sessions, server)):
        assert visit(sessions, server)


def test_what_is_forgotten_is_not_offered(server, files):
    sessions = TlsSessions(*files)
    visit(sessions, server)
    sessions.forget()
    assert not visit(sessions, server)


def test_another_server_gets_no_session_of_the_first(server, files, certificates):
    sessions = TlsSessions(*files)
    visit(sessions, server)
    with closing(Server(certificates.server_folder.parent)) as other:
        assert not visit(sessions, other)
        assert visit(sessions, other)
    assert visit(sessions, server)


def test_a_server_that_knows_no_session_gets_a_whole_handshake(server, files, certificates):
    sessions = TlsSessions(*files)
    visit(sessions, server)
    with closing(Server(certificates.server_folder.parent)) as restarted:
        server.context = restarted.context  # other ticket keys
    assert not visit(sessions, server)
    assert visit(sessions, server)


def test_a_handshake_that_fails_is_a_whole_one_the_next_time(server, files):
    sessions = TlsSessions(*files)
    visit(sessions, server)
    server.breaks = True
    with pytest.raises(OSError, match=r"EOF|reset|closed|unexpected"):
        connect(sessions, server)
    server.breaks = False
    assert not visit(sessions, server)


def test_files_that_change_end_their_sessions(server, files, certificates):
    sessions = TlsSessions(*files)
    visit(sessions, server)
    renewed = certificates.client("renewed")
    shutil.copy(renewed.cert, files[1])
    with pytest.raises(ssl.SSLError):  # half of the change
        connect(sessions, server)
    shutil.copy(renewed.key, files[2])
    os.utime(files[2], ns=(1, 1))
    assert not visit(sessions, server)
    assert visit(sessions, server)


def test_a_file_that_is_missing_is_named(files):
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        files[0].unlink()
        sessions = TlsSessions(*files)
        with (
            socket.create_connection(listening.getsockname()) as plain,
            pytest.raises(FileNotFoundError),
        ):
            sessions.wrap_socket(plain, server_hostname="127.0.0.1")


def test_the_same_files_are_the_same_sessions(files):
    assert shared_sessions(*files) is shared_sessions(*files)
    assert shared_sessions(files[0], None, None) is not shared_sessions(*files)


def test_a_probe_waits_for_no_alert_where_a_ticket_came(server, files, monkeypatch):
    monkeypatch.setattr(probe, "_ALERT_WAIT_MS", 3_600_000)
    tls = dict(zip(("ca", "cert", "key"), files, strict=True))
    host, port = server.address
    found = probe.probe_brokers(Connection(brokers=f"{host}:{port}", tls=tls))
    assert found is not None
