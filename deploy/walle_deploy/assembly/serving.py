"""A whole release service: its releases in a store, with controller, monitor and alarms.

Each worker has all parts. A lease in the store decides which controller leads. The monitors count
one after the other, each frame once. Simulations run in processes of their own.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from walle_deploy.assembly.alarming import alarming
from walle_deploy.assembly.operating import demand_operators
from walle_deploy.assembly.simulating import PackageSimulator
from walle_deploy.distribution.signed_urls import UrlSigner, read_ring
from walle_deploy.model.receipts import Receipt
from walle_deploy.monitoring.definition import Alarms
from walle_deploy.monitoring.monitor import Monitor, ReportGatherer
from walle_deploy.monitoring.reader import HealthReader
from walle_deploy.monitoring.transport import OWN_MAX_BYTES, read_batch
from walle_deploy.operators.operator import Operator
from walle_deploy.page.app import page_routes
from walle_deploy.release.commands import ReleaseCommands
from walle_deploy.release.controller import LEASE_MS, Controller
from walle_deploy.release.head import read_head
from walle_deploy.release.verification import need_head
from walle_deploy.service.admission import OPEN_MODE, Admission, picked
from walle_deploy.service.bodies import BodyRoom, read_body
from walle_deploy.service.operating import operator_routes
from walle_deploy.service.refusals import refusal
from walle_deploy.service.service import Parts, ReleaseService
from walle_deploy.service.settings import ServiceSpec
from walle_deploy.service.worker import load_settings
from walle_deploy.store.adapters import StoredTables
from walle_deploy.store.opening import open_store
from walle_deploy.store.port import ReleaseStore
from walle_deploy.store.receipt_keys import StoredReceiptKeys
from walle_deploy.trust.repository import TrustedRepository
from walle_stream.errors import (
    EnvelopeError,
    ForbiddenError,
    IdentityError,
    ReceiptError,
    RefNotFoundError,
    ServiceBusyError,
    SpecFileError,
    WalleError,
)
from walle_stream.spec.single import load_single
from walle_stream.wire.report_batch import BATCH_MAX_BYTES, REPORTS_PATH

OPENER: Final = f"{__name__}:open_parts"
_RING: Final = "cen.json"
_SHORT_BYTES: Final = 16_384  # decoding this takes less time than the start of a thread
_log = logging.getLogger(__name__)


def open_parts(setup: Mapping[str, str], admission: Admission) -> Parts:
    """Open the parts of a whole service.

    Args:
        setup: ``store`` is the address of a release store. The other keys are optional.
            ``repository`` is the folder of the signed files, for simulations and exclusive
            addresses, and ``keys`` the folder of its keys. ``alarms`` is a YAML of the kind
            Alarms, ``lease_ms`` the controllers' lease. ``audit_head`` is a saved head of the
            audit log, and ``audit_keys`` the public keys of its signer.
        admission: Admits reports.

    Raises:
        WalleError: A part cannot be opened.
    """
    store = open_store(setup["store"])
    # a second connection, so that checks never wait for reports
    counted = open_store(setup["store"])
    receipts = StoredReceiptKeys(store, is_open=admission.is_open)

    def read_receipt(token: str) -> Receipt:
        receipt = receipts.keys.read(token, receipts.now_ms())
        if admission.is_revoked(receipt.device):
            # also behind a relay, whose devices admission does not know
            raise ReceiptError(
                f"a receipt of device {receipt.device!r}, which is revoked", "revoked"
            )
        return receipt

    monitor = Monitor(counted, read_receipt, needs_receipts=not admission.is_open)
    operators = None if admission.operators is None else admission.operators.spec
    if operators is not None:
        demand_operators(store, operators)

    needs_second = operators is not None and operators.second_person
    header = "authorization" if operators is None else operators.header
    folder = Path(setup["repository"]) if setup.get("repository") else None
    alarms = Path(setup["alarms"]) if setup.get("alarms") else None
    return Parts(
        StoredTables(store),
        _signer(setup),
        receipts,
        (
            Route(REPORTS_PATH, _receiving(monitor, admission), methods=["POST"]),
            *operator_routes(store, admission.admit_operator, needs_second=needs_second),
            *page_routes(store, admission.admit_operator, partial(_stop, store), header),
        ),
        partial(_beside, store, counted, folder, alarms, int(setup.get("lease_ms", LEASE_MS))),
        figures_beside=monitor.figures,
    )


def open_service(
    store: str, files: str = "", *, repository: str = "", keys: str = "", file: Path | None = None
) -> ReleaseService:
    """Open a service for ``push_middleware``, which answers checks within another application.

    It only answers checks. ``walle serve`` over the same store receives devices' reports and
    drives releases. Blocks on the store.

    Args:
        store: Address of a release store.
        files: Address of a server with all files, if the YAML names none.
        repository: Folder of the signed files. With it, exclusive files are offered under
            addresses that its keys sign.
        keys: Folder of the keys, if it is not in the repository.
        file: YAML of ``kind: ReleaseService``; None for the defaults.

    Raises:
        SpecFileError: The YAML is not valid, or the addresses of files are missing.
        WalleError: The store, or the keys, cannot be opened.
    """
    spec = load_settings(file, files)
    need_addresses(spec, has_own_files=bool(repository))
    opened = open_store(store, make=False)
    signer = _signer({"repository": repository, "keys": keys})
    admission = Admission(spec)
    receipts = StoredReceiptKeys(opened, is_open=admission.is_open)
    parts = Parts(StoredTables(opened), signer, receipts)
    service = ReleaseService(spec, parts._replace(beside=lambda: closing(opened)), admission)
    if admission.is_open:
        service.warn_once(OPEN_MODE)
    return service


def need_addresses(spec: ServiceSpec, *, has_own_files: bool) -> None:
    """Refuse a set-up that offers files without addresses to pull them from.

    Raises:
        SpecFileError: An address is missing.
    """
    wanted = ["cdn", "metadata", *(["cen"] if has_own_files else [])]
    missing = [f"spec.{name}" for name in wanted if not getattr(spec, name)]
    if missing:
        raise SpecFileError(
            f"devices would get no address for files, as there is no {', '.join(missing)}: pass "
            "--files URL of the server with all files (such as walle repository serve), or "
            "write the addresses into the ReleaseService YAML"
        )


def check_parts(setup: Mapping[str, str]) -> None:
    """Refuse a set-up of ``open_parts`` from which no worker can start.

    Raises:
        RefNotFoundError: The repository does not exist.
        IntegrityError: The store lacks the saved head of the audit log.
        WalleError: Another part is not valid.
    """
    with closing(open_store(setup["store"], make=False)) as store, store.reading() as transaction:
        if setup.get("audit_head"):
            # an older copy of the store would offer versions again that were rolled back since
            kept = read_head(Path(setup["audit_head"]), Path(setup["audit_keys"]))
            need_head(transaction.audit(after=kept.number - 1), kept)
    if setup.get("repository") and not (Path(setup["repository"]) / "public").is_dir():
        raise RefNotFoundError(
            f"{setup['repository']}: there is no repository here: make one with walle repository "
            "init"
        )
    if setup.get("alarms"):
        load_single(Path(setup["alarms"]), Alarms)


def _signer(setup: Mapping[str, str]) -> UrlSigner | None:
    if not setup.get("repository"):
        return None
    folder = Path(setup["repository"])
    ring = Path(setup.get("keys") or folder / "keys") / _RING
    return UrlSigner(read_ring(ring)) if ring.exists() else None


def _stop(
    store: ReleaseStore, operator: Operator, name: str, action: str, why: str, revision: int
) -> None:
    operator.need("author")
    commands = ReleaseCommands(store, operator)
    change = commands.pause if action == "pause" else commands.roll_back
    change(name, why, revision)


def _receiving(monitor: Monitor, admission: Admission) -> Callable[[Request], object]:
    room = BodyRoom(2 * BATCH_MAX_BYTES)  # holds a thousand usual batches at once
    gatherer = ReportGatherer(monitor)

    async def receive(request: Request) -> Response:
        try:
            headers = picked(request.scope["headers"], admission.headers)
            visit = admission.admit_reports(headers, request.scope["client"])
            with room.share() as share:
                is_own = visit.proven.role == "device"
                most = OWN_MAX_BYTES if is_own else BATCH_MAX_BYTES
                body = await read_body(request, most, share)
                admission.spend(visit, 0, share.held_bytes)
                if isinstance(body, Response):
                    return body
                own = visit.proven.name if is_own else ""
                if len(body) <= _SHORT_BYTES:
                    frames = read_batch(body, own)
                else:
                    frames = await asyncio.to_thread(read_batch, body, own)
                admission.spend(visit, len(frames), 0)
                new = await gatherer.receive(frames, own)
        except ForbiddenError as error:
            return _refused(admission.refused_later(visit.address, error))
        except (EnvelopeError, IdentityError, ServiceBusyError) as error:
            return _refused(error)
        except WalleError as error:
            _log.warning("reports: %s", error)
            return _refused(error)
        return JSONResponse({"new": new})

    return receive


def _refused(error: WalleError) -> Response:
    status, headers = refusal(error)
    return JSONResponse({"error": error.message}, status, headers)


@contextmanager
def _beside(
    store: ReleaseStore,
    counted: ReleaseStore,
    folder: Path | None,
    alarms: Path | None,
    lease_ms: int,
) -> Iterator[None]:
    with ExitStack() as stack:
        stack.callback(store.close)
        stack.callback(counted.close)
        if alarms is not None:
            stack.enter_context(alarming(store, alarms))
        simulator = PackageSimulator(folder / "public" if folder is not None else Path())
        health = HealthReader(store)
        controller = Controller(store, health, simulator, lease_ms)
        if folder is not None:
            controller.is_retired = TrustedRepository(folder).is_retired
        stack.callback(controller.close)
        stop = threading.Event()
        thread = threading.Thread(target=controller.run, args=(stop,), name="walle-releases")
        thread.start()
        stack.callback(thread.join)
        stack.callback(stop.set)
        yield
