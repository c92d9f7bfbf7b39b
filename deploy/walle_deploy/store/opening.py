"""Opens the store of an address."""

import re
from pathlib import Path
from typing import Final

from walle_deploy.store.port import ReleaseStore
from walle_deploy.store.sqlite import SqliteStore
from walle_stream.errors import ServiceUnreachableError, SpecFileError
from walle_stream.errors.extras import how_to_install

_POSTGRES: Final = ("postgresql://", "postgres://")
_ADDRESS: Final = re.compile("([A-Za-z][A-Za-z0-9+.-]+):/")


def open_store(address: str, *, make: bool = True) -> ReleaseStore:
    """Open the store in an SQLite file, or at a ``postgresql://...`` address.

    Raises:
        SpecFileError: The address is not valid.
        ServiceUnreachableError: The store cannot be reached, or psycopg is not installed.
        IntegrityError: The database is not a release store, or of a later version.
    """
    if not address.startswith(_POSTGRES):
        if scheme := _ADDRESS.match(address):
            # the rest may hold a password
            raise SpecFileError(
                f"the address of the release store is not valid: it begins with '{scheme[1]}:', "
                "expected postgresql://USER:PASSWORD@HOST/DATABASE, or the path of a file"
            )
        if not (make or Path(address).exists()):
            raise ServiceUnreachableError(
                f"there is no release store {address}: the first published version makes it"
            )
        return SqliteStore(Path(address))
    try:
        from walle_deploy.store.postgres import PostgresStore  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ServiceUnreachableError(
            f"psycopg is not installed: {how_to_install('deploy')}"
        ) from error
    return PostgresStore(address)
