"""The development server and a real nginx: the same answers, to the same devices and thieves."""

import json
import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path

import msgspec
import pytest
import urllib3
import uvicorn

from walle_deploy.device.files import DeviceIdentity, VerifiedFiles
from walle_deploy.distribution.server import build_app
from walle_deploy.distribution.signed_urls import PROOF_HEADER, KeyRing, UrlSigner, prove
from walle_deploy.model.names import TaskRef
from walle_deploy.model.pushes import PushedTask
from walle_deploy.trust.publishing import ExclusiveFile, publish_version
from walle_deploy.trust.repository import TrustedRepository
from walle_stream.clock import wall_ms
from walle_stream.errors import RefNotFoundError, ServiceUnreachableError

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[4]
TEMPLATE = ROOT / "deploy" / "nginx" / "walle.conf.template"
MAIN = """
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {server}
}}
"""


class Served:
    """A published version with files of 100 devices, its keys, and an address."""

    def __init__(self, folder, packages):
        self.folder, self.ring, self.now_ms = folder, KeyRing.create(), None
        self.repository = TrustedRepository.create(folder, bin_bits=2)
        exclusive = [ExclusiveFile(f"d-{i}", "prices.bin", b"price %d" % i) for i in range(99)]
        exclusive.append(ExclusiveFile("user:ann/é", "prices.bin", b"ann's"))
        ref = TaskRef("shop", "ipv", "v1")
        self.files = publish_version(self.repository, ref, packages["v1"], exclusive)
        self.signer = UrlSigner(self.ring, lambda: self.now_ms or wall_ms())
        self.http = urllib3.PoolManager(retries=False)

    def get(self, url, path, **headers):
        return self.http.request("GET", url + path, headers=headers)

    def push(self, url, owner, device):
        shared = [msgspec.structs.replace(f, url=url + f.url) for f in self.files.shared]
        own = [
            msgspec.structs.replace(f, url=url + self.signer.sign(f.url, device))
            for f in self.files.exclusive[owner]
        ]
        return PushedTask("shop/ipv", "v1", "r1", (*shared, *own))

    def identity(self, device, user=""):
        return DeviceIdentity(device, user, self.ring.device_secret(device))


@pytest.fixture(scope="module")
def served(tmp_path_factory, packages):
    made = Served(tmp_path_factory.mktemp("served") / "repository", packages)
    yield made
    made.http.clear()


@pytest.fixture(scope="module")
def embedded(served):
    app = build_app(served.folder / "public", served.folder / "private", served.signer)
    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
    running = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        running.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def nginx(served, embedded, tmp_path_factory):
    command = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if command is None:
        pytest.skip("no nginx on this machine: .ci/servers.sh puts it there")
    folder = tmp_path_factory.mktemp("nginx")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = TEMPLATE.read_text()
    values = {"LISTEN": f"127.0.0.1:{port}", "FOLDER": served.folder, "AUTHORIZE": embedded[7:-1]}
    for name, value in values.items():
        server = server.replace(f"${{WALLE_{name}}}", str(value))
    (folder / "nginx.conf").write_text(MAIN.format(folder=folder, server=server))
    running = subprocess.Popen([command, "-p", folder, "-c", folder / "nginx.conf"])
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except ConnectionRefusedError:
            try:
                assert running.wait(0.01) is None, (folder / "error.log").read_text()
            except subprocess.TimeoutExpired:
                continue
    yield f"http://127.0.0.1:{port}/"
    running.terminate()
    running.wait()


@pytest.fixture(params=["embedded", pytest.param("nginx", marks=pytest.mark.full)])
def url(request):
    return request.getfixturevalue(request.param)


def test_a_device_gets_shared_and_exclusive_files(served, url, tmp_path):
    files = VerifiedFiles(tmp_path, served.repository.root())
    pushed = served.push(url, "d-7", "d-7")
    found = files.pull(pushed, f"{url}metadata", served.identity("d-7"))
    assert found["prices.bin"].read_bytes() == b"price 7"
    pushed = served.push(url, "user:ann/é", "d-8")
    found = files.pull(pushed, f"{url}metadata", served.identity("d-8", "ann/é"))
    assert found["prices.bin"].read_bytes() == b"ann's"
    files.close()


def test_a_stolen_address_is_refused(served, url, tmp_path):
    files = VerifiedFiles(tmp_path, served.repository.root())
    stolen = served.push(url, "d-7", "d-7")
    # the thief says that it is d-7, but has another device's secret
    for secret in (served.ring.device_secret("d-8"), "x", "x.y"):
        thief = DeviceIdentity("d-7", "", secret)
        with pytest.raises(
            ServiceUnreachableError, match="403: the address expired or is for another"
        ):
            files.pull(stolen, f"{url}metadata", thief)
    files.close()


@pytest.mark.parametrize(
    "target",
    [
        "/{victim}#/{own}",
        "/{victim}#/x/../{own}",
        "/{victim}%23/{own}",
        "/{victim}/../../../{own}",
        "/{victim};/{own}",
        "/{victim}?x=/{own}",
        "/{victim}?{query}#/{own}",
        "/{victim}%3f/{own}",
        "//{victim}?{query}",
    ],
)
def test_an_address_of_ones_own_opens_nothing_else(served, url, target):
    # written as it is, which no client library would do
    victim = served.files.exclusive["d-7"][0].url
    own = served.signer.sign(served.files.exclusive["d-8"][0].url, "d-8")
    line = target.format(victim=victim, own=own, query=own.partition("?")[2])
    host, port = url[7:-1].split(":")
    for address in (line, own):
        proof = prove(served.ring.device_secret("d-8"), address)
        head = f"GET {line} HTTP/1.0\r\nHost: x\r\n{PROOF_HEADER}: {proof}\r\n\r\n"
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head.encode())
            answer = b"".join(iter(lambda c=connection: c.recv(65_536), b""))
        # where a server takes it for one's own address, that is what one gets
        assert b"price 7" not in answer
        assert answer.split()[1] in {b"400", b"403", b"404"} or answer.endswith(b"price 8")


def test_a_device_without_a_secret_asks_no_server_for_its_own_files(served, tmp_path):
    nobody = "http://127.0.0.1:1/"
    files = VerifiedFiles(tmp_path, served.repository.root())
    pushed = served.push(nobody, "d-7", "d-7")
    with pytest.raises(
        RefNotFoundError, match=r"walle repository enrol REPO d-7 --json.*--secrets FILE"
    ):
        files.pull(pushed, f"{nobody}metadata", DeviceIdentity("d-7"))
    files.close()


def test_an_expired_address_is_refused(served, url, tmp_path):
    files = VerifiedFiles(tmp_path, served.repository.root())
    pushed = served.push(url, "d-9", "d-9")
    served.now_ms = wall_ms() + 700_000
    try:
        with pytest.raises(ServiceUnreachableError, match="403"):
            files.pull(pushed, f"{url}metadata", served.identity("d-9"))
        served.now_ms = wall_ms() + 630_000  # a file server whose clock is 30 s ahead
        assert files.pull(pushed, f"{url}metadata", served.identity("d-9"))
    finally:
        served.now_ms = None
    files.close()


def test_what_may_be_cached_says_so(served, url):
    shared = served.files.shared[0].url
    newest = served.get(url, "metadata/timestamp.json")
    assert (newest.status, newest.headers["Cache-Control"]) == (200, "no-cache")
    for path in (shared, "metadata/1.root.json"):
        found = served.get(url, path)
        assert (found.status, found.headers["Cache-Control"]) == (
            200,
            "public, max-age=31536000, immutable",
        )
    # a root that does not exist yet must not be cached as missing
    missing = served.get(url, "metadata/2.root.json")
    assert (missing.status, missing.headers["Cache-Control"]) == (404, "no-store")
    own = served.files.exclusive["d-1"][0].url
    signed = served.signer.sign(own, "d-1")
    proof = prove(served.ring.device_secret("d-1"), signed)
    found = served.get(url, signed, **{PROOF_HEADER: proof})
    assert (found.data, found.headers["Cache-Control"]) == (b"price 1", "private, no-store")


def test_a_part_is_sent_where_it_is_asked_for(served, url, packages):
    found = served.get(url, served.files.shared[0].url, Range="bytes=100-199")
    assert (found.status, found.data) == (206, packages["v1"][100:200])
    assert found.headers["Content-Range"].startswith("bytes 100-199/")
    assert "immutable" in found.headers["Cache-Control"]


@pytest.mark.parametrize(
    "path",
    [
        *("", "metadata/", "metadata", "targets/", "targets/ab/", "metadata/tree/", "exclusive/"),
        *(".git/config", "metadata/.part", "targets/ab/.part", "../keys/cen.json", "%2e%2e/keys"),
        *("metadata/../../keys/cen.json", "metadata/%2e%2e/%2e%2e/LOCK", "private/exclusive/ab/x"),
        *("metadata//timestamp.json%00", "metadata/timestamp.json.bak", "LOCK"),
        *("metadata/timestamp.json%0a", f"exclusive/ab/{64 * chr(97)}%0a?device=d-1"),
    ],
)
def test_nothing_else_is_served(served, url, path):
    with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1][:-1]))) as peer:
        peer.sendall(f"GET /{path} HTTP/1.0\r\n\r\n".encode())
        answer = b"".join(iter(lambda: peer.recv(65_536), b""))
    assert answer.split(b" ")[1] in {b"400", b"404"}


def test_a_link_is_not_followed(served, url):
    name = "targets/ab/" + "ab" * 32
    link = served.folder / "public" / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(served.folder / "LOCK")
    try:
        assert served.get(url, name).status in {403, 404}
    finally:
        link.unlink()


@pytest.mark.parametrize("query", ["", "?", "?device=d-1", "?device=d-1&expires=9&key=k&sig=s"])
def test_an_address_that_nobody_signed_is_refused(served, url, query):
    found = served.get(url, served.files.exclusive["d-1"][0].url + query)
    assert found.status == 403


@pytest.mark.full
def test_nobody_asks_nginx_for_the_check_itself(served, nginx):
    assert served.get(nginx, "authorize").status == 404


@pytest.mark.full
def test_nginx_refuses_when_nobody_checks(served, nginx):
    own = served.signer.sign(served.files.exclusive["d-1"][0].url, "d-1")
    assert served.get(nginx, own, **{"X-Original-URI": "/x", PROOF_HEADER: "a.b"}).status == 403


@pytest.mark.full
def test_metadata_is_sent_small(served, nginx):
    version = served.repository.status().roles[2].version
    found = served.get(nginx, f"metadata/{version}.snapshot.json", **{"Accept-Encoding": "gzip"})
    assert json.loads(found.data)["signed"]["_type"] == "snapshot"
    found = served.get(nginx, "metadata/1.root.json", **{"Accept-Encoding": "gzip"})
    assert found.headers["Content-Encoding"] == "gzip"
