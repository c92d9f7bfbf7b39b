"""Loader of a file with one definition of a kind that pipelines do not use."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from pydantic import BaseModel

from walle_stream.spec.document import Document, shown
from walle_stream.spec.messages import Refused, refuse, validate
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
    """Load the one document of a file, and keep the places of its values.

    Paths in the result are absolute, resolved from the file's folder. The model's ``kind`` must
    be a literal.

    Raises:
        SpecFileError: The definition is wrong; the message names the place.
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
    refused = Refused(document, model, (), value)
    validated = validate(refused, model, file.parent.absolute())
    if isinstance(validated, list):
        refuse(validated, str(file))
    return document, validated


def kind_of(file: Path) -> str:
    """Return the kind of a file's first document; empty if the document has none.

    Raises:
        SpecFileError: The file is not YAML.
    """
    value = read_documents(file, os.environ)[0].value
    kind = value.get("kind") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else ""
