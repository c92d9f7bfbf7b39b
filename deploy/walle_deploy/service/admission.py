"""What a request has to pass before anything else: who asks, and whether that is not too often.

A budget of the address is asked first, so that refusals cost an address something, too; then who
it is, then his own budget. All of it is a worker's own: with N workers a budget is N times as
large at most.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from walle_deploy.identity.budgets import AddressBudget, Budget, BudgetsSpec, DeviceBudget
from walle_deploy.identity.proven import ANYBODY, DeviceAuthenticator, Proven
from walle_deploy.identity.proxies import FORWARDED, Proxies, ProxyAuthenticator, neighbours
from walle_deploy.identity.settings import OpenSpec
from walle_deploy.identity.tokens import TokenAuthenticator
from walle_deploy.operators.authenticator import OperatorAuthenticator
from walle_deploy.operators.operator import Operator
from walle_deploy.policy.files import WatchedFile, read_revoked
from walle_deploy.service.refusals import RefusedRequests
from walle_deploy.service.settings import ServiceSpec
from walle_stream.clock import monotonic_ms, wall_ms
from walle_stream.errors import ForbiddenError, IdentityError, ServiceBusyError, WalleError

OPEN_MODE: Final = (
    "authentication is open: nobody is asked who he is, so reports are no evidence of who sent "
    "them; write spec.authentication into the ReleaseService YAML (docs/deploy/identity.md)"
)
CLOSED: Final = (
    "this service lets nobody see or change releases over HTTP: write spec.operators into its "
    "ReleaseService YAML (docs/deploy/operators.md)"
)
_UNPROVEN_COST: Final = 10
"""Of an address, in checks: to verify a signature takes as long as some of them."""


class Visit(NamedTuple):
    """Who asks, and from where."""

    proven: Proven
    address: str
    """What has one budget; empty where there is none."""


class Admission:
    """Of one service. One event loop, but for ``refresh``."""

    def __init__(self, spec: ServiceSpec) -> None:
        """Read keys and lists; blocks.

        Raises:
            SpecFileError: One of its files cannot be read.
        """
        authentication = spec.authentication
        self.mode = authentication.mode
        """``open``, ``tokens`` or ``proxy``."""
        self.refused: Counter[str] = Counter()
        """Requests by why: ``unproven``, ``forbidden``, ``over_budget``."""
        self._proxies = Proxies(spec.proxies)
        self._authenticator = _authenticator(spec, self._proxies)
        self._revoked: WatchedFile[frozenset[str]] | None = None
        if not isinstance(authentication, OpenSpec) and authentication.revoked is not None:
            self._revoked = WatchedFile.opened(authentication.revoked, read_revoked)
        self.operators = None if spec.operators is None else OperatorAuthenticator(spec.operators)
        """Who may change releases; None: nobody."""
        self._devices = _budgets(spec.budgets, spec.budgets.device)
        self._addresses = _budgets(spec.budgets, spec.budgets.address)
        own = self._authenticator.headers if self._authenticator is not None else frozenset()
        self.headers = own | ({FORWARDED} if spec.proxies else frozenset())
        self._refusals = RefusedRequests(self.refused)

    @property
    def is_open(self) -> bool:
        """Whether nobody is asked who he is."""
        return self._authenticator is None

    def admit_check(self, headers: Mapping[bytes, bytes], client: tuple[str, int] | None) -> str:
        """Let a check in, and return the device's id; empty where nobody is asked.

        ``headers`` are what ``picked`` gives; ``client`` is None where it has no address.

        Raises:
            IdentityError: It has not proven who it is.
            ForbiddenError: It is no device.
            ServiceBusyError: It comes too often.
        """
        proven, address = self._admitted(headers, client, ("checks",))
        if proven.role == "relay":
            raise self._refused(
                "forbidden",
                address,
                ForbiddenError(f"relay {proven.name!r} may bring reports, and ask for no device"),
            )
        return proven.name

    def admit_reports(
        self, headers: Mapping[bytes, bytes], client: tuple[str, int] | None
    ) -> Visit:
        """Let a batch of reports in, whose body is not read yet.

        Raises:
            IdentityError: Who sends them has not proven who he is.
            ServiceBusyError: He sent too much.
        """
        return self._admitted(headers, client, ("frames", "bytes"))

    async def admit_operator(
        self, headers: Iterable[tuple[bytes, bytes]], client: tuple[str, int] | None
    ) -> Operator:
        """Let a person in who works on releases.

        Raises:
            IdentityError: He has not proven who he is.
            ForbiddenError: He has no role, or nobody has one.
            ServiceBusyError: He comes too often.
        """
        if self.operators is None:
            raise ForbiddenError(CLOSED)
        own_headers = picked(headers, self.operators.headers | self.headers)
        peer, now_s = client[0] if client else "", monotonic_ms() / 1_000
        address = neighbours(self._proxies.client(peer, own_headers.get(FORWARDED, b"")))
        if address and (after_s := self._addresses["checks"].try_spend(address, 1, now_s)):
            raise self._too_much(f"{address}: this address", "checks", after_s, address)
        try:
            # its keys may be at the issuer's
            return await asyncio.to_thread(
                self.operators.prove, own_headers, peer, wall_ms() / 1_000
            )
        except (IdentityError, ForbiddenError) as error:
            self._addresses["checks"].spend(address, _UNPROVEN_COST - 1, now_s)
            is_proven = isinstance(error, ForbiddenError)
            raise self._refused("forbidden" if is_proven else "unproven", address, error) from None

    def spend(self, visit: Visit, frames: int, size_bytes: int) -> None:
        """Take from budgets what a batch was."""
        now_s = monotonic_ms() / 1_000
        for what, amount in (("frames", frames), ("bytes", size_bytes)):
            if visit.address:
                self._addresses[what].spend(visit.address, amount, now_s)
            if visit.proven.role == "device":
                self._devices[what].spend(visit.proven.name, amount, now_s)

    def refused_later(self, address: str, error: ForbiddenError) -> ForbiddenError:
        """Count, and seldom log, what was let in and turned out to be for somebody else."""
        return self._refused("forbidden", address, error)

    def is_revoked(self, name: str) -> bool:
        """Return whether a device, a relay or a token is revoked; any thread."""
        return self._revoked is not None and name in (self._revoked.known or ())

    def _check_revoked(self, proven: Proven) -> None:
        if self.is_revoked(proven.name) or (proven.token and self.is_revoked(proven.token)):
            raise IdentityError(f"{proven.role} {proven.name!r}, or its token, is revoked")

    def refresh(self) -> None:
        """Read files again that have changed; blocks, any thread."""
        for file in self._watched():
            file.refresh()

    @property
    def problems(self) -> tuple[str, ...]:
        """Why files could not be read again, a line each."""
        return tuple(file.problem for file in self._watched() if file.problem)

    def _watched(self) -> list[WatchedFile[Any]]:
        own = [] if self._authenticator is None else list(self._authenticator.watched)
        return own if self._revoked is None else [*own, self._revoked]

    def _admitted(
        self,
        headers: Mapping[bytes, bytes],
        client: tuple[str, int] | None,
        budgets: tuple[str, ...],
    ) -> Visit:
        now_s = monotonic_ms() / 1_000
        peer = client[0] if client else ""
        address = neighbours(self._proxies.client(peer, headers.get(FORWARDED, b"")))
        if address:
            for what in budgets:
                if after_s := self._addresses[what].try_spend(address, 1, now_s):
                    raise self._too_much(f"{address}: this address", what, after_s, address)
        if self._authenticator is None:
            return Visit(ANYBODY, address)
        try:
            proven = self._authenticator.prove(headers, peer, wall_ms() / 1_000)
            self._check_revoked(proven)
        except IdentityError as error:
            self._addresses[budgets[0]].spend(address, _UNPROVEN_COST - 1, now_s)
            raise self._refused("unproven", address, error) from None
        if proven.role == "device":
            for what in budgets:
                if after_s := self._devices[what].try_spend(proven.name, 1, now_s):
                    raise self._too_much(f"device {proven.name!r}", what, after_s, address)
        return Visit(proven, address)

    def _too_much(self, who: str, what: str, after_s: float, address: str) -> ServiceBusyError:
        error = ServiceBusyError(
            f"{who} sent more {what} than it may (spec.budgets): again in {after_s:.0f} s", after_s
        )
        return self._refused("over_budget", address, error)

    def _refused[E: WalleError](self, why: str, address: str, error: E) -> E:
        self._refusals.add(why, address, error.message)
        return error


def _budgets(spec: BudgetsSpec, rates: DeviceBudget | AddressBudget) -> dict[str, Budget]:
    burst_s = spec.burst_ms / 1_000
    return {
        name: Budget(getattr(rates, name), burst_s, spec.remembered)
        for name in ("checks", "frames", "bytes")
    }


def _authenticator(spec: ServiceSpec, proxies: Proxies) -> DeviceAuthenticator | None:
    authentication = spec.authentication
    if authentication.mode == "open":
        return None
    if authentication.mode == "tokens":
        return TokenAuthenticator(authentication)
    return ProxyAuthenticator(authentication, proxies)


def picked(headers: Iterable[tuple[bytes, bytes]], wanted: frozenset[bytes]) -> dict[bytes, bytes]:
    """Return the headers that somebody looks at; of one that stands there twice both values."""
    values: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in wanted:
            # a second one must not stand for the first, nor the first for the second (RFC 9110)
            values[name] = value if name not in values else values[name] + b", " + value
    return values
