"""Pages of the cloud side: the latest features of a device, and health. JSON over HTTP.

A device's row is at the worker that has its partition, which the key alone does not tell (the
sender chooses the partition). A worker without the row therefore asks the others, once. A device is
unknown only if the answers cover all partitions. An address proves nothing: a worker reports its
partitions, and answers only its own group.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager
from email.message import Message
from http.client import HTTPConnection, HTTPException
from threading import Lock
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, parse_qs, quote, unquote

import msgspec

from walle_stream.clock import monotonic_ms
from walle_stream.cloud.calls import show_services
from walle_stream.cloud.heads import shown
from walle_stream.cloud.partitions import MOVING, Partitions
from walle_stream.cloud.sink_pump import show_lags
from walle_stream.errors import MetricsAddressError
from walle_stream.types import device_id_problem
from walle_stream.wire.metrics_text import Metrics
from walle_stream.wire.pages import Page, PageServer

_ASKED_HEADER: Final = "X-Walle-Forwarded"
"""Header of another worker's request, with its group."""

_FEATURES: Final = "/features/"
_OTHER_S: Final = 5.0
_CLIENT_S: Final = 10.0
_HANGS_MS: Final = 1_000.0
_OK: Final = 200
_MERGED: Final = "Items merged by this worker's tables, by kind."
_LAG: Final = "Records of a partition that its table lacks, as of the last fetch."
_READY: Final = "Whether a partition's table has all records that existed at its opening."
_REPORTS: Final = "Reports of devices for the release service, by outcome."
_STATUS: Final = {"": "ok", MOVING: "rebalancing"}


class _Without(msgspec.Struct):
    # answer of a worker to another one about a device that it does not have
    error: str
    partitions: list[int]


class Group(NamedTuple):
    """The other workers of the group."""

    name: str
    partitions: int
    owners: Callable[[Collection[int]], Mapping[int, str]]
    """Returns ``HOST:PORT`` of partitions' owners, after a refresh for the wrong ones given."""


class _Hanging:
    """Addresses that do not answer, so that later questions do not wait for them."""

    def __init__(self) -> None:
        self._since: dict[str, list[float]] = {}  # start of each open question, ascending
        self._lock = Lock()

    def is_so(self, address: str) -> bool:
        with self._lock:
            open_ones = self._since.get(address, ())
            return any(monotonic_ms() - began_ms > _HANGS_MS for began_ms in open_ones[:1])

    @contextmanager
    def asking(self, address: str) -> Iterator[None]:
        began_ms = monotonic_ms()
        with self._lock:
            self._since.setdefault(address, []).append(began_ms)
        try:
            yield
        finally:
            with self._lock:
                self._since[address].remove(began_ms)
                if not self._since[address]:
                    del self._since[address]


class LookUps:
    """Answers to requests; any thread."""

    def __init__(
        self,
        partitions: Partitions,
        group: Group,
        keep: int,
        more_health: Callable[[], Mapping[str, Any]],
    ) -> None:
        """Begin; answers show at most ``keep`` features of a task."""
        self._partitions = partitions
        self._group = group
        self._keep = keep
        self._more_health = more_health
        self._hanging = _Hanging()

    def health(self) -> tuple[int, Any]:
        """Return status and body of ``/healthz``."""
        problem = self._partitions.problem
        body = {
            "status": _STATUS.get(problem, "cut off"),
            **self._partitions.health(),
            **self._more_health(),
        }
        if problem:
            body["partitions"] = {}  # other workers may have them
        return (503 if problem else _OK), body

    def metrics(self) -> str:
        """Return the body of ``/metrics``, Prometheus' text format."""
        status, health = self.health()
        metrics = Metrics()
        metrics.gauge("walle_cloud_up", "Whether the worker is in its group.").set(status == _OK)
        # no counters: partitions that move take their counts with them
        merged = metrics.gauge("walle_cloud_merged", _MERGED, ["what"])
        for what, count in health["counts"].items():
            merged.set(count, what=what)
        lag = metrics.gauge("walle_cloud_lag_records", _LAG, ["partition"])
        ready = metrics.gauge("walle_cloud_ready", _READY, ["partition"])
        for partition, each in health["partitions"].items():
            lag.set(each["lag_records"], partition=partition)
            ready.set(each["is_ready"], partition=partition)
        show_lags(metrics, health.get("sinks", {}))
        show_services(metrics, health.get("services", {}))
        if health.get("reports"):
            reports = metrics.gauge("walle_cloud_reports", _REPORTS, ["state"])
            for state, count in health["reports"].items():
                reports.set(count, state=state)
        return metrics.render()

    def features(self, device_id: str, task: str | None, asked_by: str | None) -> tuple[int, Any]:
        """Return status and body of ``/features/DEVICE``; blocks.

        ``asked_by`` is the group of the worker that forwards a request; None for a client.
        """
        wrong = device_id_problem(device_id)
        if wrong is not None:
            return 400, {"error": wrong}
        if asked_by not in {None, self._group.name}:
            return 421, {"error": f"this is a worker of {self._group.name!r}"}
        mine = self._partitions.ready
        kept, is_whole = self._partitions.look_up(device_id)
        mine &= self._partitions.ready  # one that moved meanwhile may have it
        problem = self._partitions.problem or ("" if is_whole else MOVING)
        if problem:
            return _not_now(problem)
        if kept is not None:
            return 200, shown(device_id, kept.head, kept.rows, self._keep, task)
        if asked_by is not None:
            return 404, _Without(_unknown(device_id), sorted(mine))
        return self._elsewhere(device_id, task, mine)

    def page(self, asked: SplitResult, headers: Message) -> Page:
        """Answer a request; blocks while other workers are asked."""
        if asked.path == "/metrics":
            return Page(_OK, self.metrics().encode())
        if asked.path in {"/healthz", "/healthz/"}:
            status, body = self.health()
        elif asked.path.startswith(_FEATURES):
            task = parse_qs(asked.query).get("task", [None])[-1]
            device_id = unquote(asked.path.removeprefix(_FEATURES), errors="surrogateescape")
            status, body = self.features(device_id, task, headers.get(_ASKED_HEADER))
        else:
            status, body = 404, {"error": "paths: /features/DEVICE /healthz /metrics"}
        return Page(status, msgspec.json.encode(body), "application/json")

    def _elsewhere(self, device_id: str, task: str | None, mine: set[int]) -> tuple[int, Any]:
        missing = set(range(self._group.partitions)) - mine
        silent: list[str] = []
        for wrong in ((), missing):  # then ask the new owners of those missed
            if not missing:
                break
            owners = self._group.owners(wrong)
            addresses = {owners[n] for n in missing if n in owners} - {self._partitions.incarnation}
            silent = []
            for address, each in self._asked(addresses, device_id, task):
                if isinstance(each, msgspec.Raw):
                    return 200, each
                if each is None:
                    silent.append(address)
                else:
                    missing = missing - set(each.partitions)
        if missing:
            shown_missing = ", ".join(map(str, sorted(missing)))
            why = f" ({', '.join(silent)} gave no answer)" if silent else ""
            return _not_now(f"no worker that answered has the partitions {shown_missing}{why}")
        # the device may have moved here meanwhile
        problem = self._partitions.problem
        return _not_now(problem) if problem else (404, {"error": _unknown(device_id)})

    def _asked(
        self, addresses: Collection[str], device_id: str, task: str | None
    ) -> Iterator[tuple[str, "msgspec.Raw | _Without | None"]]:
        # answers in order of arrival: a hanging worker does not delay the answer of another
        asking = ThreadPoolExecutor(max(len(addresses), 1))
        try:
            answers = {asking.submit(self._ask, each, device_id, task): each for each in addresses}
            for answer in as_completed(answers):
                yield answers[answer], answer.result()
        finally:
            asking.shutdown(wait=False, cancel_futures=True)

    def _ask(
        self, address: str, device_id: str, task: str | None
    ) -> "msgspec.Raw | _Without | None":
        if self._hanging.is_so(address):
            return None
        query = "" if task is None else f"?task={quote(task, safe='')}"
        path = f"{_FEATURES}{quote(device_id, safe='')}{query}"
        try:
            with (
                self._hanging.asking(address),
                closing(HTTPConnection(address, timeout=_OTHER_S)) as connection,
            ):
                connection.request("GET", path, headers={_ASKED_HEADER: self._group.name})
                answer = connection.getresponse()
                body = answer.read()
            if answer.status == 200:  # noqa: PLR2004 - HTTP
                return msgspec.json.decode(body, type=msgspec.Raw)
            if answer.status == 404:  # noqa: PLR2004 - HTTP
                return msgspec.json.decode(body, type=_Without)
        except (OSError, ValueError, HTTPException, msgspec.MsgspecError):
            pass
        self._group.owners(range(self._group.partitions))  # it may have none any more
        return None


def serve_look_ups(host: str, port: int, look_ups: LookUps) -> PageServer:
    """Serve the pages until closed.

    Raises:
        MetricsAddressError: The address is in use, or not of this machine.
    """
    try:
        return PageServer(host, port, look_ups.page, client_s=_CLIENT_S, name="walle-look-ups")
    except (OSError, UnicodeError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise MetricsAddressError(
            f"look-ups cannot be answered at {host}:{port} ({reason}): give another "
            "--web-port or --web-host"
        ) from error


def _unknown(device_id: str) -> str:
    return f"no features of device {device_id!r}"


def _not_now(why: str) -> tuple[int, Any]:
    return 503, {"error": f"unknown at the moment: {why}; ask again"}
