"""A mapping that can be compiled, and what is known of its events before a row is read."""

import json
from typing import Self

from pydantic import model_validator

from walle_stream.ports import DeclaredIds
from walle_stream.reading.dead_letters import text_digest
from walle_stream.reading.mapping.compiling import check_mapping
from walle_stream.reading.mapping.expressions import literals
from walle_stream.reading.mapping.keys import RowKeys


class RowMapping(RowKeys):
    """What rows are, and which events they give."""

    @property
    def declared(self) -> DeclaredIds:
        """Ids and pages that stand here as literals."""
        # without an id of its own an event has its kind's
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
        """What tells it from others, hexadecimal."""
        # without defaults: a key that a later version adds does not change old sources
        keys = self.model_dump(mode="json", exclude={"path"}, exclude_defaults=True)
        return text_digest(json.dumps(keys, sort_keys=True).encode())

    @model_validator(mode="after")
    def _can_be_compiled(self) -> Self:
        check_mapping(self)
        return self
