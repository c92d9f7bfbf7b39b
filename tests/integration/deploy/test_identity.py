"""Devices, relays and thieves at a real service: tokens, and certificates behind a real nginx."""

import json
import os
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection, HTTPSConnection

import pytest

pytest.importorskip("jwt", reason="the extra `deploy` is not installed")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.unit.deploy.monitoring.reporting import frame, report
from walle_deploy.identity.signing import SigningKey
from walle_deploy.model.profile import DeviceProfile, encode_profile
from walle_deploy.model.pushes import PushedFile
from walle_deploy.model.receipts import Receipt
from walle_deploy.model.releases import VersionFiles
from walle_deploy.monitoring.reader import HealthReader
from walle_deploy.monitoring.transport import HttpReportSink
from walle_deploy.release.commands import ReleaseCommands
from walle_deploy.store.opening import open_store
from walle_deploy.store.receipt_keys import StoredReceiptKeys, read_open_mode
from walle_stream.wire.report_batch import encode_batch

pytestmark = pytest.mark.integration

TASK = "shop/ipv"
SETUP = """\
apiVersion: walle/v1
kind: ReleaseService
metadata: {name: shop}
spec:
  poll: 20ms
  AUTHENTICATION
"""
TOKENS = "authentication: {mode: tokens, keys: keys.json, issuer: shop, revoked: revoked.txt}"
PROXY = """proxies: [127.0.0.1]
  authentication: {mode: proxy, header: x-client-name, secret: secret.txt, relays: [cloud]}"""
NGINX = """
daemon off;
master_process off;
pid FOLDER/pid;
error_log FOLDER/error.log;
events {}
http {
    access_log off;
    client_body_temp_path FOLDER/body;
    proxy_temp_path FOLDER/proxy;
    fastcgi_temp_path FOLDER/fastcgi;
    uwsgi_temp_path FOLDER/uwsgi;
    scgi_temp_path FOLDER/scgi;
    server {
        listen 127.0.0.1:PORT ssl;
        ssl_certificate FOLDER/server.pem;
        ssl_certificate_key FOLDER/server.key;
        ssl_client_certificate FOLDER/ca.pem;
        ssl_verify_client on;
        location ~ ^/v1/(check|reports)$ {
            proxy_pass http://127.0.0.1:SERVICE;
            proxy_set_header x-client-name $ssl_client_s_dn;
            proxy_set_header walle-proxy-secret SECRET;
            proxy_set_header x-forwarded-for $proxy_add_x_forwarded_for;
        }
    }
}
"""


@pytest.fixture
def folder(tmp_path):
    SigningKey.create("shop").write(tmp_path / "signing.json", tmp_path / "keys.json")
    (tmp_path / "revoked.txt").write_text("")
    with closing(open_store(str(tmp_path / "releases.db"))) as store:
        commands = ReleaseCommands(store, "ann")
        commands.publish(TASK, "v1", VersionFiles((PushedFile("t", "t", "0" * 64, 1),)))
        commands.adopt(TASK, "v1", "first")
    return tmp_path


@contextmanager
def service(folder, authentication="", *arguments):
    (folder / "service.yaml").write_text(SETUP.replace("AUTHENTICATION", authentication))
    given = ["--store", str(folder / "releases.db"), "--files", "http://127.0.0.1:9/", "--json"]
    command = [sys.executable, "-m", "walle_stream.cli", "serve", str(folder / "service.yaml")]
    with (folder / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            [*command, *given, "--listen", "127.0.0.1:0", *arguments],
            stdout=subprocess.PIPE, stderr=errors, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip
    try:
        line = json.loads(process.stdout.readline())
        yield int(line["url"].rpartition(":")[2]), line
    finally:
        process.terminate()
        process.communicate()


def asked(connection, method, path, body=None, **headers):
    made = {name.replace("_", "-"): value for name, value in headers.items()}
    with closing(connection):
        connection.request(method, path, body, made)
        answer = connection.getresponse()
        return answer.status, answer.read()


def check(port, device, token=None, connection=None, **headers):
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    profile = encode_profile(DeviceProfile(device, "shop"))
    connection = connection or HTTPConnection("127.0.0.1", port, timeout=30)
    return asked(connection, "GET", "/v1/check", walle_profile=profile, **headers)[0]


def post(port, frames, token=None, connection=None, **headers):
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    connection = connection or HTTPConnection("127.0.0.1", port, timeout=30)
    return asked(connection, "POST", "/v1/reports", encode_batch(frames), **headers)[0]


def metrics(port):
    return asked(HTTPConnection("127.0.0.1", port, timeout=30), "GET", "/metrics")[1].decode()


def of(device, number=1, incarnation="ab" * 8, receipt=""):
    made = report([(device, 1, {})])
    made.devices[0].receipt = receipt
    return frame(number, made, incarnation=incarnation)


def receipt(folder, device):
    """Return the receipt that a service of this store gives a device with the version."""
    with closing(open_store(str(folder / "releases.db"))) as store:
        source = StoredReceiptKeys(store)
        return source.keys.issue(Receipt(device, TASK, "v1", issued_ms=source.now_ms()))


def devices(folder):
    with closing(open_store(str(folder / "releases.db"))) as store:
        return HealthReader(store).health(TASK, "v1").devices


def open_ms(folder):
    with closing(open_store(str(folder / "releases.db"))) as store, store.reading() as reading:
        return read_open_mode(reading).until_ms


def test_with_tokens_each_speaks_for_itself_and_relays_for_all(folder, caplog):
    key = SigningKey.read(folder / "signing.json")
    own, relay = key.sign("device", "d-1"), key.sign("relay", "cloud")
    thief = SigningKey.create("shop").sign("relay", "cloud")
    with service(folder, TOKENS, "--workers", "2") as (port, line):
        assert line["authentication"] == "tokens"
        while check(port, "d-1", own) == 503:
            time.sleep(0.05)
        assert check(port, "d-1", own) == 200
        assert [check(port, "d-1", each) for each in (None, "x", thief, relay)] == [
            401,
            401,
            401,
            403,
        ]
        assert check(port, "d-2", own) == 403
        assert check(port, "d-1", "A" * 8_000) == 401
        assert [post(port, [of("d-1")], each) for each in (None, "x", thief)] == [401] * 3
        assert post(port, [of("d-2")], own) == 403
        assert post(port, [of("d-1"), of("d-2", 2)], own) == 403
        long = of("d-1")._replace(body=bytes(2**20))
        assert [post(port, [long], each) for each in (own, relay)] == [413, 200]
        assert devices(folder) == 0
        assert post(port, [of("d-1"), of("d-1", 2, receipt=receipt(folder, "d-2"))], own) == 200
        assert devices(folder) == 0  # without a receipt of its own it counts for nothing
        # numbers of others' data directories are not used up by a device
        assert post(port, [of("d-1", 2**61, "cd" * 8, receipt(folder, "d-1"))], own) == 200
        # refused reports wait for a valid token, and one line is logged
        given = [thief]
        sink = HttpReportSink(f"http://127.0.0.1:{port}", backoff_s=0.01, token=lambda: given[0])
        names = {number: f"d-{number}" for number in range(1, 21)}
        sink.take([of(each, n, "cd" * 8, receipt(folder, each)) for n, each in names.items()])
        ends = time.monotonic() + 30
        while "answered 401" not in caplog.text:
            assert time.monotonic() < ends
            time.sleep(0.01)
        given[0] = relay
        sink.close(30)
        assert caplog.text.count("answered 401") == 1
        assert (sink.dropped, devices(folder)) == (0, 20)
        # revoked in all workers, and every 20 ms they look
        (folder / "revoked.part").write_text("d-1\n")
        (folder / "revoked.part").replace(folder / "revoked.txt")
        ends = time.monotonic() + 30
        while [check(port, "d-1", own) for _ in range(20)] != [401] * 20:
            assert time.monotonic() < ends
        assert post(port, [of("d-1", 3)], own) == 401
        for why in ("forbidden", "unproven"):  # those of the other worker are a second old
            while f'why="{why}"' not in metrics(port):
                assert time.monotonic() < ends + 30
                time.sleep(0.05)
    assert open_ms(folder) == 0
    assert "authentication is open" not in (folder / "stderr").read_text()


def test_reports_that_are_invented_leave_no_row_in_the_store(folder):
    """By thieves, by a device that was revoked, and by one that may report and lies."""
    key = SigningKey.read(folder / "signing.json")
    own, relay = key.sign("device", "d-1"), key.sign("relay", "cloud")
    other = SigningKey.create("shop").sign("device", "d-1")  # of another fleet
    late = key.sign("device", "d-1", valid_s=-3_600)
    (folder / "revoked.txt").write_text("d-9\n")
    shared, good = receipt(folder, "d-2"), receipt(folder, "d-1")

    def rows():
        with closing(sqlite3.connect(folder / "releases.db")) as store:
            return [
                store.execute(f"SELECT COUNT(*) FROM {each}").fetchone()[0]  # noqa: S608 - ours
                for each in ("walle_scopes", "walle_counted", "walle_windows", "walle_marks")
            ]

    with service(folder, TOKENS) as (port, _):
        while check(port, "d-1", own) == 503:
            time.sleep(0.05)
        for number in range(3):  # a budget ends sooner than rows could
            name = f"{number:016x}"
            lies = [of("d-1", 1, name, each) for each in ("", "A" * 80, shared, good[:-2])]
            # in the receipt's place, so is a version that nobody published
            made = report([("d-1", 1, {"E": 1})], f"v{number + 7}")
            made.devices[0].receipt = good
            lies.append(frame(2, made, incarnation=name))
            assert post(port, lies, own) == 200
            assert post(port, [of(f"x-{number}", 1, name, good)], relay) == 200
            assert post(port, [of("d-1", 1, name, good)], other) == 401
            assert post(port, [of("d-1", 1, name, good)], late) == 401
            assert post(port, [of("d-9", 1, name)], key.sign("device", "d-9")) == 401
            assert post(port, [of("d-2", 1, name, shared)], own) == 403
        assert rows() == [0, 0, 0, 0]
        assert post(port, [of("d-1", 1, receipt=good)], own) == 200
        before = rows()
        assert [post(port, [of("d-1", 1, receipt=good)], own) for _ in range(5)] == [200] * 5
        assert rows() == before
    assert devices(folder) == 1


def test_the_open_mode_says_so_at_the_start_and_in_the_status(folder):
    with service(folder) as (port, line):
        assert line["authentication"] == "open"
        assert post(port, [of("invented")]) == 200
        shown = asked(HTTPConnection("127.0.0.1", port), "GET", "/healthz")[1]
        assert shown == b"ok\nauthentication: open\n"
        assert "walle_release_open{" in metrics(port)
        ends = time.monotonic() + 30
        while not open_ms(folder):
            assert time.monotonic() < ends
    said = (folder / "stderr").read_text()
    assert said.count("authentication is open: devices need no proof") == 1


def certificate(name, key, issuer=None, signer=None):
    now = datetime.now(UTC)
    subject = x509.Name([
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "CN=d-2,Fleet"),
        x509.NameAttribute(NameOID.COMMON_NAME, name),
    ])  # fmt: skip
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer or subject)
    made = made.public_key(key.public_key()).serial_number(x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(
        x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True
    )
    return made.sign(signer or key, hashes.SHA256())


def write_pair(folder, name, made, key):
    (folder / f"{name}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / f"{name}.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))


@contextmanager
def nginx(folder, service_port):
    command = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if command is None:
        pytest.skip("no nginx on this machine: .ci/servers.sh puts it there")
    authority, thief = (
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
    )
    root, other = certificate("ca", authority), certificate("ca", thief)
    write_pair(folder, "ca", root, authority)
    for name, signer, issuer in (
        ("server", authority, root), ("d-1", authority, root), ("cloud", authority, root), ("stolen", thief, other),
    ):  # fmt: skip
        key = ec.generate_private_key(ec.SECP256R1())
        subject = "d-1" if name == "stolen" else name
        write_pair(folder, name, certificate(subject, key, issuer.subject, signer), key)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    values = {"FOLDER": folder, "PORT": port, "SERVICE": service_port, "SECRET": "s" * 32}
    text = NGINX
    for name, value in values.items():
        text = text.replace(name, str(value))
    (folder / "nginx.conf").write_text(text)
    running = subprocess.Popen([command, "-p", folder, "-c", folder / "nginx.conf"])
    ends = time.monotonic() + 30
    while time.monotonic() < ends:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except ConnectionRefusedError:
            assert running.poll() is None, (folder / "error.log").read_text()
            time.sleep(0.01)
    try:
        yield port
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait()


@pytest.mark.full
def test_certificates_behind_nginx(folder):
    (folder / "secret.txt").write_text("s" * 32 + "\n")

    def secure(port, name):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if name:
            context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
        return HTTPSConnection("127.0.0.1", port, timeout=30, context=context)

    with service(folder, PROXY) as (direct, _), nginx(folder, direct) as port:
        while check(port, "d-1", connection=secure(port, "d-1")) == 503:
            time.sleep(0.05)
        assert check(port, "d-1", connection=secure(port, "d-1")) == 200
        assert check(port, "d-2", connection=secure(port, "d-1")) == 403
        # nginx's word replaces the client's
        lie = {"x_client_name": "CN=d-2", "x-forwarded-for": "9.9.9.9"}
        assert check(port, "d-2", connection=secure(port, "d-1"), **lie) == 403
        assert check(port, "d-1", connection=secure(port, "cloud")) == 403
        assert check(port, "d-1", connection=secure(port, "")) == 400
        assert check(port, "d-1", connection=secure(port, "stolen")) == 400
        assert post(port, [of("d-7")], connection=secure(port, "d-1")) == 403
        frames = [of("d-7", receipt=receipt(folder, "d-7"))]
        assert post(port, frames, connection=secure(port, "cloud")) == 200
        # past nginx, from this machine: the secret is not known
        assert check(direct, "d-1", x_client_name="CN=d-1") == 401
        assert check(direct, "d-1", x_client_name="CN=d-1", walle_proxy_secret="g" * 16) == 401
    assert devices(folder) == 1
