"""Which models there are, in which archives, and what their inputs are like."""

import tomllib
from pathlib import Path

import msgspec

MANIFEST = Path(__file__).with_name("models.toml")


class Draw(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """How an input is made: one value, some of the texts, uniform numbers, or normal ones."""

    shape: tuple[int, ...] | None = None
    """That of the model where it is None."""
    low: float | None = None
    high: float = 1.0
    """Excluded for whole numbers."""
    value: float | None = None
    texts: tuple[str, ...] = ()


class ZooModel(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A file of an archive."""

    name: str
    file: str
    sha256: str
    inputs: dict[str, Draw] = {}


class Archive(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A wheel of the package index."""

    package: str
    version: str
    sha256: str
    licence: str
    """What the package says of itself."""
    models: list[ZooModel]


def read_manifest(path: Path = MANIFEST) -> list[Archive]:
    """Read the archives; what is not as it must be raises msgspec.ValidationError."""
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    return msgspec.convert(found, dict[str, list[Archive]])["archives"]
