"""The operators' routes over a store, in a release service or in a process of its own.

A store remembers the operators' set-up of its newest service. From then on, a change without a
service needs a token of these operators, too. Before, the name of a person is unverified, and the
audit log says so.
"""

from collections.abc import Iterable
from typing import Final

from pydantic import ValidationError
from starlette.applications import Starlette

from walle_deploy.operators.authenticator import OperatorAuthenticator
from walle_deploy.operators.operator import Operator
from walle_deploy.operators.settings import OperatorsSpec
from walle_deploy.outbound.bounded import one_line
from walle_deploy.release.controller import CONTROLLER
from walle_deploy.service.admission import picked
from walle_deploy.service.operating import operator_routes
from walle_deploy.store.port import ReleaseStore
from walle_deploy.store.schema import altered
from walle_stream.clock import wall_ms
from walle_stream.errors import IdentityError, IntegrityError

_KIND: Final = "operators"


def demand_operators(store: ReleaseStore, spec: OperatorsSpec) -> None:
    """Store the operators' set-up as a condition for later changes; blocks."""
    # a duration is read only from its text form, and the default suffices here
    data = spec.model_dump_json(by_alias=True, exclude={"skew_ms"}).encode()
    if _demanded(store) != data:
        with store.writing() as transaction:
            transaction.put_snapshot(_KIND, _KIND, data)


def local_app(store: ReleaseStore, by: str) -> Starlette:
    """Return the application of the operators' routes for a process with the store; blocks.

    ``by`` is the person's name if the store demands no operators.

    Raises:
        SpecFileError: The operators' keys are not on this machine: use the service.
        IdentityError: The name is not possible.
        IntegrityError: The stored set-up was altered.
    """
    data = _demanded(store)
    if data is None:
        if by == CONTROLLER:
            raise IdentityError(
                f"the name {by!r} is reserved for the controller: choose another with --by"
            )
        typed = Operator(by, "approver", is_verified=False)

        async def prove(_: object, __: object) -> Operator:
            return typed

        return Starlette(routes=operator_routes(store, prove))
    try:
        spec = OperatorsSpec.model_validate_json(data, by_alias=True, by_name=False)
    except ValidationError as error:
        wrong: IntegrityError = altered("the operators' set-up", one_line(str(error)))
        raise wrong from error
    authenticator = OperatorAuthenticator(spec)

    async def prove_token(headers: Iterable[tuple[bytes, bytes]], _: object) -> Operator:
        return authenticator.prove(picked(headers, authenticator.headers), "", wall_ms() / 1_000)

    return Starlette(routes=operator_routes(store, prove_token, needs_second=spec.second_person))


def _demanded(store: ReleaseStore) -> bytes | None:
    with store.reading() as reading:
        return reading.snapshot(_KIND, _KIND)
