"""A repository, a file server that can be told to misbehave, and devices that pull from it."""

import http.server
import os
import threading
from pathlib import Path

import msgspec
import pytest

from walle_deploy.device.files import DeviceIdentity, VerifiedFiles
from walle_deploy.device.files_http import TransferLimits
from walle_deploy.model.names import TaskRef
from walle_deploy.model.pushes import PushedTask
from walle_deploy.trust.publishing import publish_version
from walle_deploy.trust.repository import TrustedRepository
from walle_stream.clock import wall_ms
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.package.build import build_package
from walle_stream.vm.package.reader import PackagedTask

LIMITS = RunLimits(1_000, 10, 5, 2_000, 2, 0, 9_999)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # 40 ms for each answer

    def do_GET(self):
        path = self.path.partition("?")[0]
        self.server.asked.append(path)
        for part, behave in self.server.evil.items():
            if part in path:
                self.close_connection = True
                behave(self)
                return
        file = self.server.folder / path.lstrip("/")
        self.answer(file.read_bytes() if file.is_file() else None)

    def answer(self, data, length=None):
        start = int(self.headers.get("Range", "bytes=0-")[6:-1]) if data else 0
        self.send_response(404 if data is None else 206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        body = (data or b"")[start:]
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class World:
    """One repository with ``shop/ipv`` v1 and v2, and who serves it."""

    def __init__(self, folder, packages, server):
        self.folder, self.packages, self.server = folder, packages, server
        self.now_ms = None
        self.repository = TrustedRepository.create(
            folder / "repository", bin_bits=2, clock=self.clock
        )
        server.folder = folder / "repository" / "public"
        server.evil, server.asked = {}, []
        self.url = f"http://127.0.0.1:{server.server_port}/"
        self.files = {}
        self.devices = []

    def clock(self):
        return self.now_ms or wall_ms()

    def publish(self, version, exclusive=()):
        ref = TaskRef("shop", "ipv", version)
        package = self.packages[version]
        self.files[version] = publish_version(self.repository, ref, package, exclusive)

    def push(self, version, **changes):
        file = self.files[version].shared[0]
        file = msgspec.structs.replace(file, url=self.url + file.url)
        file = msgspec.structs.replace(file, **changes)
        return PushedTask("shop/ipv", version, "r1", (file,))

    def path(self, version):
        return self.files[version].shared[0].url

    def device(self, name="d-1", root=None, **limits):
        quick = {"pause_ms": 0, "idle_ms": 5_000, **limits}
        folder = self.folder / "devices" / name
        made = VerifiedFiles(folder, root or self.repository.root(), TransferLimits(**quick))
        self.devices.append(made)
        return made

    def pull(self, device, push, service_ms=None, identity=None):
        service_ms = service_ms or self.now_ms
        return device.pull(
            push, f"{self.url}metadata", identity or DeviceIdentity("d-1"), service_ms
        )

    def spoil(self, part, behave):
        self.server.evil = {part: behave}

    def serve(self, part, data):
        self.spoil(part, lambda handler: handler.answer(data))

    def saved(self):
        return {path: path.read_bytes() for path in self.server.folder.rglob("*") if path.is_file()}

    def restore(self, saved):
        for path, data in saved.items():
            path.write_bytes(data)


@pytest.fixture(autouse=True)
def _no_power_cut(monkeypatch):
    # none is tested, and some disks take 5 ms for each
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="session")
def packages():
    def made(number):
        task = PackagedTask("ipv", f"v{number}", 1, "t.py", (("a",),), None, {}, LIMITS)
        return build_package(task, f"def run(ctx, page):\n    ctx.emit({{'v': {number}}})\n")

    return {f"v{number}": made(number) for number in (1, 2)}


@pytest.fixture(scope="session")
def server():
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    made.daemon_threads = True
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def world(tmp_path, packages, server):
    made = World(tmp_path, packages, server)
    made.publish("v1")
    yield made
    for device in made.devices:
        device.close()


@pytest.fixture
def blobs():
    """Complete files of a device, by their hash."""

    def find(device):
        return {p.name for p in Path(device.folder).glob("blobs/??/*")}

    return find
