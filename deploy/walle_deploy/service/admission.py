"""Admission of requests: it proves the identity and checks the budgets of the sender.

The address's budget comes first, so that refusals cost an address something, too. The identity
comes next, then the sender's own budget. Each worker has its own state: with N workers a budget is
at most N times as large.
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
    "authentication is open: devices need no proof of identity, so reports do not prove their "
    "senders; add spec.authentication to the ReleaseService YAML (docs/deploy/identity.md)"
)
CLOSED: Final = (
    "this service neither shows nor changes releases over HTTP: add spec.operators to its "
    "ReleaseService YAML (docs/deploy/operators.md)"
)
_UNPROVEN_COST: Final = 10
"""Cost for an address, in checks: verifying a signature takes as long as some checks."""


class Visit(NamedTuple):
    """The identity and the address of a sender."""

    proven: Proven
    address: str
    """Unit that has one budget; empty if there is no address."""


class Admission:
    """Admission of one service; for one event loop, except for ``refresh``."""

    def __init__(self, spec: ServiceSpec) -> None:
        """Read keys and lists; blocks.

        Raises:
            SpecFileError: A file cannot be read.
        """
        authentication = spec.authentication
        self.mode = authentication.mode
        """``open``, ``tokens`` or ``proxy``."""
        self.refused: Counter[str] = Counter()
        """Number of refused requests by reason: ``unproven``, ``forbidden``, ``over_budget``."""
        self._proxies = Proxies(spec.proxies)
        self._authenticator = _authenticator(spec, self._proxies)
        self._revoked: WatchedFile[frozenset[str]] | None = None
        if not isinstance(authentication, OpenSpec) and authentication.revoked is not None:
            self._revoked = WatchedFile.opened(authentication.revoked, read_revoked)
        self.operators = None if spec.operators is None else OperatorAuthenticator(spec.operators)
        """Authenticator of people who may change releases; None if no one may."""
        self._devices = _budgets(spec.budgets, spec.budgets.device)
        self._addresses = _budgets(spec.budgets, spec.budgets.address)
        own = self._authenticator.headers if self._authenticator is not None else frozenset()
        self.headers = own | ({FORWARDED} if spec.proxies else frozenset())
        self._refusals = RefusedRequests(self.refused)

    @property
    def is_open(self) -> bool:
        """Whether devices need no proof of identity."""
        return self._authenticator is None

    def admit_check(self, headers: Mapping[bytes, bytes], client: tuple[str, int] | None) -> str:
        """Admit a check, and return the device's id, or "" in the open mode.

        ``headers`` come from ``picked``; ``client`` is None if it has no address.

        Raises:
            IdentityError: The sender has not proven an identity.
            ForbiddenError: The sender is not a device.
            ServiceBusyError: The sender exceeds a budget.
        """
        proven, address = self._admitted(headers, client, ("checks",))
        if proven.role == "relay":
            raise self._refused(
                "forbidden",
                address,
                ForbiddenError(
                    f"relay {proven.name!r} may bring reports, but not check for devices"
                ),
            )
        return proven.name

    def admit_reports(
        self, headers: Mapping[bytes, bytes], client: tuple[str, int] | None
    ) -> Visit:
        """Admit a batch of reports before its body is read.

        Raises:
            IdentityError: The sender has not proven an identity.
            ServiceBusyError: The sender exceeds a budget.
        """
        return self._admitted(headers, client, ("frames", "bytes"))

    async def admit_operator(
        self, headers: Iterable[tuple[bytes, bytes]], client: tuple[str, int] | None
    ) -> Operator:
        """Admit a person who works on releases.

        Raises:
            IdentityError: The person has not proven an identity.
            ForbiddenError: The person has no role, or no one has one.
            ServiceBusyError: The address exceeds a budget.
        """
        if self.operators is None:
            raise ForbiddenError(CLOSED)
        own_headers = picked(headers, self.operators.headers | self.headers)
        peer, now_s = client[0] if client else "", monotonic_ms() / 1_000
        address = neighbours(self._proxies.client(peer, own_headers.get(FORWARDED, b"")))
        if address and (after_s := self._addresses["checks"].try_spend(address, 1, now_s)):
            raise self._too_much(f"{address}: this address", "checks", after_s, address)
        try:
            # the keys may have to be fetched from the issuer
            return await asyncio.to_thread(
                self.operators.prove, own_headers, peer, wall_ms() / 1_000
            )
        except (IdentityError, ForbiddenError) as error:
            self._addresses["checks"].spend(address, _UNPROVEN_COST - 1, now_s)
            is_proven = isinstance(error, ForbiddenError)
            raise self._refused("forbidden" if is_proven else "unproven", address, error) from None

    def spend(self, visit: Visit, frames: int, size_bytes: int) -> None:
        """Take the cost of a batch from the budgets."""
        now_s = monotonic_ms() / 1_000
        for what, amount in (("frames", frames), ("bytes", size_bytes)):
            if visit.address:
                self._addresses[what].spend(visit.address, amount, now_s)
            if visit.proven.role == "device":
                self._devices[what].spend(visit.proven.name, amount, now_s)

    def refused_later(self, address: str, error: ForbiddenError) -> ForbiddenError:
        """Count, and seldom log, a request that was admitted but asked for another device."""
        return self._refused("forbidden", address, error)

    def is_revoked(self, name: str) -> bool:
        """Return whether a device, a relay or a token is revoked; safe in any thread."""
        return self._revoked is not None and name in (self._revoked.known or ())

    def _check_revoked(self, proven: Proven) -> None:
        if self.is_revoked(proven.name) or (proven.token and self.is_revoked(proven.token)):
            raise IdentityError(f"{proven.role} {proven.name!r}, or its token, is revoked")

    def refresh(self) -> None:
        """Read changed files again; blocks, safe in any thread."""
        for file in self._watched():
            file.refresh()

    @property
    def problems(self) -> tuple[str, ...]:
        """A line for each file that could not be read again, with the reason."""
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
            f"{who} sent more {what} than it may (spec.budgets): retry in {after_s:.0f} s", after_s
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
    """Return the wanted headers; a repeated header gives both values."""
    values: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in wanted:
            # neither value may hide the other (RFC 9110)
            values[name] = value if name not in values else values[name] + b", " + value
    return values
