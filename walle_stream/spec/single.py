"""Loads a file that holds one definition of a kind that pipelines know nothing of."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from pydantic import BaseModel, ValidationError

from walle_stream.errors import SpecFileError
from walle_stream.spec.annotations import resolve_paths
from walle_stream.spec.document import Document, shown
from walle_stream.spec.loader import restore_texts
from walle_stream.spec.messages import Refused, explain
from walle_stream.spec.models import API_VERSION
from walle_stream.spec.nodes import read_documents
from walle_stream.spec.suggestions import suggest


def load_single[M: BaseModel](
    file: Path, model: type[M], environ: Mapping[str, str] = os.environ
) -> M:
    """Load the one document of a file; see ``load_document``."""
    return load_document(file, model, environ)[1]


def load_document[M: BaseModel](
    file: Path, model: type[M], environ: Mapping[str, str]
) -> tuple[Document, M]:
    """Load the one document of a file, and keep where its values stand.

    Paths in it are absolute then, from its folder. The model's ``kind`` is a literal.

    Raises:
        SpecFileError: Something is wrong; the message names the place.
    """
    (kind,) = get_args(model.model_fields["kind"].annotation)
    documents = read_documents(file, environ)
    document, value = documents[0], documents[0].value
    if len(documents) != 1:
        raise document.error((), f"expected one {kind}, found {len(documents)} documents")
    if not isinstance(value, dict):
        raise document.error((), f"expected a mapping, found {shown(value)}")
    for key, wanted in (("apiVersion", API_VERSION), ("kind", kind)):
        if key in value and value[key] != wanted:
            hint = suggest(value[key], [wanted]) if isinstance(value[key], str) else ""
            raise document.error((key,), f"unknown {key} {shown(value[key])}{hint}")
    folder = file.parent.absolute()
    resolve_paths(document, model, (), value, folder)
    refused = Refused(document, model, (), value, ())
    while True:
        try:
            return document, model.model_validate(value, by_alias=True, by_name=False)
        except ValidationError as error:
            if restore_texts(refused, error, folder):
                continue
            problems = explain(refused, error)
        first = min(
            problems,
            key=lambda problem: (problem.is_consequence, problem.error.line, problem.error.column),
        ).error
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise SpecFileError(first.message + more, first.file, first.line, first.column)


def kind_of(file: Path) -> str:
    """Return what the first document of a file says is its kind; empty where it says none.

    Raises:
        SpecFileError: It is no YAML.
    """
    value = read_documents(file, os.environ)[0].value
    kind = value.get("kind") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else ""
