"""A compilable mapping, and the ids of its events that are known before any row."""

import json
from typing import Self

from pydantic import model_validator

from walle_stream.ports import DeclaredIds
from walle_stream.reading.dead_letters import text_digest
from walle_stream.reading.mapping.compiling import check_mapping
from walle_stream.reading.mapping.expressions import literals
from walle_stream.reading.mapping.keys import RowKeys


class RowMapping(RowKeys):
    """Format of rows and their events."""

    @property
    def declared(self) -> DeclaredIds:
        """Ids and pages that the mapping has as literals."""
        # an event without its own id has its kind as id
        ids = [{event.kind} if event.id is None else literals(event.id) for event in self.events]
        pages = [literals(event.page) for event in self.events]
        return DeclaredIds(
            frozenset().union(*(names or () for names in ids)),
            frozenset().union(*(names or () for names in pages)),
            has_other_ids=None in ids,
            has_other_pages=None in pages,
        )

    @property
    def digest(self) -> str:
        """Digest that identifies the mapping, hexadecimal."""
        # without defaults, so that a key of a later version does not change old digests
        keys = self.model_dump(mode="json", exclude={"path"}, exclude_defaults=True)
        return text_digest(json.dumps(keys, sort_keys=True).encode())

    @model_validator(mode="after")
    def _can_be_compiled(self) -> Self:
        check_mapping(self)
        return self
