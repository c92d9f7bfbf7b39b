"""Attributes of users: age band, region and interest tags, from a CSV or SQLite file.

Users with the same attributes share one record, so a user costs 12 bytes. An empty cell is an
unknown attribute.
"""

import csv
import sqlite3
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple
from urllib.parse import quote

from pydantic import Field, StrictInt, StringConstraints

from walle_deploy.policy.compact import CompactIds
from walle_deploy.policy.hashing import id_hash
from walle_stream.errors import SpecFileError
from walle_stream.spec.paths import PathField
from walle_stream.spec.strict import Strict

_RECORDS_MAX: Final = 1_000_000


class Attributes(NamedTuple):
    """Attributes of one user; an unknown attribute is empty."""

    age_band: str = ""
    region: str = ""
    interest_tags: frozenset[str] = frozenset()


class AttributeTable:
    """The attributes of all users in one reading of the source."""

    def __init__(self, rows: Iterable[tuple[str, Attributes]]) -> None:
        """Store all users.

        Raises:
            SpecFileError: The users have more than a million different combinations of attributes.
        """
        self._records: list[Attributes] = []
        numbers: dict[Attributes, int] = {}
        users: list[int] = []

        def ids() -> Iterator[str]:
            for user, attributes in rows:
                number = numbers.setdefault(attributes, len(numbers))
                if number == len(self._records):
                    if number == _RECORDS_MAX:
                        raise SpecFileError(
                            f"attributes: more than {_RECORDS_MAX:,} different combinations of "
                            "age band, region and tags: keep fewer tags"
                        )
                    self._records.append(attributes)
                users.append(number)
                yield user

        self._users = CompactIds(ids(), users)

    def __len__(self) -> int:
        """Return the number of users."""
        return len(self._users)

    def of(self, user: str) -> Attributes | None:
        """Return a user's attributes, or None for an unknown user."""
        number = self._users.number(id_hash(user))
        return None if number < 0 else self._records[number]


_Column = Annotated[str, StringConstraints(min_length=1, max_length=100)]


class AttributeSource(Strict):
    """The source of users' attributes."""

    file: PathField = Field(description="CSV with a header row, or a SQLite database.")
    format: Literal["csv", "sqlite"] = Field(default="csv", description="Format of the file.")
    table: _Column = Field(default="users", description="Table of a SQLite database.")
    user: _Column = Field(default="user", description="Column of the user's id.")
    age_band: _Column = Field(default="age_band", description="Column; may be missing.")
    region: _Column = Field(default="region", description="Column; may be missing.")
    interest_tags: _Column = Field(default="interest_tags", description="Column; may be missing.")
    tag_separator: Annotated[str, StringConstraints(min_length=1, max_length=4)] = Field(
        default="|", description="Separator of the tags in a cell."
    )
    users_max: StrictInt = Field(
        default=10_000_000, ge=1, le=50_000_000, description="Most users to read."
    )

    def read(self, path: Path) -> AttributeTable:
        """Read the whole file; blocks.

        Raises:
            SpecFileError: The file differs from its declaration, or is too large.
            OSError: The file cannot be read.
        """
        rows = self._csv_rows(path) if self.format == "csv" else self._sqlite_rows(path)
        with closing(rows):
            head = next(rows, [])
            if self.user not in head:
                raise SpecFileError(
                    f"{path}: there is no column {self.user!r} of users, found {', '.join(head)}"
                )
            table = AttributeTable(self._users_of(head, islice(rows, self.users_max)))
            if next(rows, None) is not None:
                raise SpecFileError(f"{path}: more users than usersMax: {self.users_max}")
        return table

    def _users_of(
        self, head: list[str], rows: Iterable[list[str]]
    ) -> Iterator[tuple[str, Attributes]]:
        columns = [
            head.index(name) if name in head else -1
            for name in (self.user, self.age_band, self.region, self.interest_tags)
        ]
        for row in rows:
            user, age, region, tags = (
                row[column].strip() if 0 <= column < len(row) else "" for column in columns
            )
            parts = (tag.strip() for tag in tags[:10_000].split(self.tag_separator))
            if user:
                yield user, Attributes(age, region, frozenset(filter(None, parts)))

    @staticmethod
    def _csv_rows(path: Path) -> Generator[list[str]]:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            try:
                yield from reader
            except csv.Error as error:
                line = reader.line_num
                raise SpecFileError(f"{path}:{line}:1: {error}", str(path), line, 1) from error

    def _sqlite_rows(self, path: Path) -> Generator[list[str]]:
        name = self.table.replace('"', '""')
        try:
            uri = f"file:{quote(str(path.absolute()))}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True)) as database:
                rows = database.execute(f'SELECT * FROM "{name}"')  # noqa: S608 - quoted
                yield [str(column[0]) for column in rows.description]
                for row in rows:
                    yield ["" if cell is None else str(cell) for cell in row]
        except sqlite3.Error as error:
            raise SpecFileError(f"{path}: table {self.table!r}: {error}") from error
