"""A release service and file server that does what a test says, and a host whose devices ask it."""

import http.server
import json
import logging
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import msgspec

from tests.integration.scripted_visits import PIPELINE
from walle_deploy.device.agent import DeviceAgent
from walle_deploy.device.client import ReleaseClient
from walle_deploy.device.files import VerifiedFiles
from walle_deploy.device.files_http import TransferLimits
from walle_deploy.device.pulling import PulledFiles
from walle_deploy.model.names import TaskRef
from walle_deploy.model.profile import PROFILE_HEADER, DeviceProfile, decode_profile
from walle_deploy.model.pushes import PUSH_TYPE, Push, PushedTask
from walle_deploy.trust.publishing import publish_version
from walle_deploy.trust.repository import TrustedRepository
from walle_stream.app.assembly import Assembly
from walle_stream.app.local import LocalRun
from walle_stream.app.options import RunOptions
from walle_stream.app.queries.query import features_lines
from walle_stream.testing.scripted import Gates, pause, write_script
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.package.build import build_package
from walle_stream.vm.package.reader import PackagedTask

WAIT_S = 30.0
SCRIPT = """
def migrate(old):
    return {"n": old["n"]}

def run(ctx, page):
    ctx.state.put("n", 1)
    ctx.emit({"v": 1})
"""
LIMITS = RunLimits(1_000, 10, 5, 2_000, 2, 0, 9_999)
DEVICES = ("phone-0", "phone-1", "phone-2")
VISITS = 60


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        service = self.server.service
        if service.stop.is_set():
            self.close_connection = True
            return
        with suppress(ConnectionError):  # a device that had enough
            if self.path == "/v1/check":
                service.checked(self, decode_profile(self.headers[PROFILE_HEADER]))
                return
            for part, behave in service.evil.items():
                if part in self.path:
                    self.close_connection = True
                    behave(self)
                    return
            file = service.public / self.path.lstrip("/")
            self.answer(
                200 if file.is_file() else 404, file.read_bytes() if file.is_file() else b""
            )

    def answer(self, status, body=b"", date=None, **headers):
        self.send_response_only(status)
        self.send_header("Date", date or self.date_time_string())
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Service:
    """One repository, and answers of ``/v1/check`` as told."""

    def __init__(self, folder):
        self.repository = TrustedRepository.create(folder / "repository", bin_bits=2)
        self.public = self.repository.folder / "public"
        self.evil, self.versions, self.date = {}, {}, None
        self.behave = None
        self.checks, self.profile = 0, None
        self.stop = threading.Event()
        self._changed = threading.Condition()
        self.port = 0
        self.start()

    def start(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.server.daemon_threads, self.server.service = True, self
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self):
        self.stop.set()
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()

    @contextmanager
    def dead(self):
        """Nobody listens, while within."""
        self.close()
        try:
            yield
        finally:
            self.stop.clear()
            self.start()

    def publish(self, name, package):
        ref = TaskRef.parse(name)
        self.versions[name] = publish_version(self.repository, ref, package).shared[0]

    def file(self, name, **changes):
        file = self.versions[name]
        url = f"{self.url}/{file.url}"
        return msgspec.structs.replace(file, **{"url": url, **changes})

    def task(self, name, **changes):
        task, _, version = name.partition("@")
        files = (self.file(name, **changes),) if version else ()
        return PushedTask(task, version, "r1", files)

    def push(self, *tasks):
        """Push to each device the versions that it lacks; other pushes were made before."""
        tasks = [self.task(each) if isinstance(each, str) else each for each in tasks]

        def behave(handler, profile):
            new = [each for each in tasks if profile.tasks.get(each.task, "") != each.version]
            body = msgspec.json.encode(Push(tuple(new), f"{self.url}/metadata/"))
            if new:
                handler.answer(200, body, self.date, Content_Type=PUSH_TYPE)
            else:
                handler.answer(204, b"", self.date)

        self.behave = behave

    def checked(self, handler, profile):
        with self._changed:
            self.checks += 1
            self.profile = profile
            self._changed.notify_all()
        if self.behave is None:
            handler.answer(204)
        else:
            self.behave(handler, profile)

    def await_checks(self, count):
        """Wait for a number of further ones."""
        with self._changed:
            until = self.checks + count
            assert self._changed.wait_for(lambda: self.checks >= until, WAIT_S)

    def await_profile(self, is_right):
        """Wait for a check with such a profile, and return it."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: self.profile is not None and is_right(self.profile), WAIT_S
            )
            return self.profile

    def saved(self):
        return {path: path.read_bytes() for path in self.public.rglob("*") if path.is_file()}

    def restore(self, saved):
        for path, data in saved.items():
            path.write_bytes(data)


class Lines(logging.Handler):
    """What the agents log."""

    def __init__(self):
        super().__init__()
        self.lines = []
        self._changed = threading.Condition()

    def emit(self, record):
        device, task = getattr(record, "device_id", ""), getattr(record, "task", "")
        with self._changed:
            self.lines.append((device, task, record.getMessage()))
            self._changed.notify_all()

    def await_line(self, line):
        """Wait for a line: device, task and text."""
        with self._changed:
            assert self._changed.wait_for(lambda: line in self.lines, WAIT_S)


class Host:
    """A pipeline that runs while tests attack; each visit is a page view on every device."""

    def __init__(self, folder, service, stack):
        self.folder, self.service = folder, service
        (folder / "pipeline.yaml").write_text(PIPELINE)
        (folder / "visits.py").write_text(SCRIPT)
        write_script(folder / "steps.jsonl", _steps())
        self.run = LocalRun(Assembly.load(folder / "pipeline.yaml"), RunOptions(folder / "data", 2))
        self.gates = Gates(folder / "steps.jsonl.gates")
        self.visits = 0
        self.expected = {device: [] for device in DEVICES}
        ended = []
        thread = threading.Thread(target=lambda: ended.append(self.run.run()))
        thread.start()
        stack.callback(self._end, thread, ended)
        assert self.gates.await_reached("p0", WAIT_S)
        # long enough for a busy machine, which must not look like a slow server
        limits = TransferLimits(idle_ms=5_000, grace_ms=2_500, bytes_per_second=200, attempts=1)
        self.files = VerifiedFiles(folder / "data-files", service.repository.root(), limits)
        stack.callback(self.files.close)
        self.client = ReleaseClient(f"{service.url}/v1/check", timeout_s=2.5)
        stack.callback(self.client.close)
        self.lines = Lines()
        logger = logging.getLogger("walle_deploy.device")
        level = logger.level
        logger.setLevel(logging.INFO)
        logger.addHandler(self.lines)
        stack.callback(logger.setLevel, level)
        stack.callback(logger.removeHandler, self.lines)

    def agent(self, device):
        made = DeviceAgent(
            DeviceProfile(device), self.client, PulledFiles(self.files), self.run.installation
        )
        made.learn()
        return made

    def versions(self, device):
        tasks = self.run.installation.tasks_of([device])[device]
        return {name: task.version for name, task in tasks.items()}

    def visit(self):
        """A page view on every device, by the version that it has."""
        for device, expected in self.expected.items():
            expected.append(self.versions(device)["visits"])
        self.gates.release(f"p{self.visits}")
        self.visits += 1
        assert self.gates.await_reached(f"p{self.visits}", WAIT_S)

    def features(self):
        found = {device: [] for device in DEVICES}
        for line in features_lines(self.folder / "data"):
            row = json.loads(line)
            if row["task"] == "visits":
                found[row["device_id"]].append(row["task_version"])
        return found

    def _end(self, thread, ended):
        self.run.stop("test")  # at a pause, of which no visit is expected any more
        thread.join(WAIT_S)
        assert ended, "the run failed"


def package(version, name="visits", layout=1):
    """A package of a task that counts visits."""
    task = PackagedTask(name, version, layout, "t.py", (("page_exit",),), None, {}, LIMITS)
    return build_package(task, SCRIPT)


def _steps():
    for number in range(VISITS):
        yield pause(f"p{number}")
        for device in DEVICES:
            for kind, offset in (("page_enter", 0), ("page_exit", 500)):
                yield {
                    "device_id": device,
                    "page_id": "shop",
                    "page_instance": str(number),
                    "kind": kind,
                    "event_time_ms": number * 1_000 + offset,
                }


def opened(folder):
    """A service and a host on it, and what closes both."""
    stack = ExitStack()
    service = Service(folder)
    stack.callback(service.close)
    host = Host(folder, service, stack)
    return service, host, stack


def trickle(head, data):
    """Answer a head, then a byte now and then."""

    def behave(handler, _profile=None):
        handler.close_connection = True
        with suppress(OSError):
            handler.wfile.write(head)
            for byte in data:
                handler.wfile.write(bytes([byte]))
                if handler.server.service.stop.wait(0.02):
                    return

    return behave


def http_date(now_s):
    """Format a time for the header ``Date``."""
    return time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(now_s))
