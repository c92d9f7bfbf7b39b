"""A pipeline's references by name: services of the cloud and models of the host."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    StrictInt,
    StringConstraints,
    model_validator,
)
from pydantic.alias_generators import to_camel

from walle_stream.spec.paths import PathField
from walle_stream.spec.scalars import DurationMs
from walle_stream.spec.strict import Strict


def one_of(*keys: str) -> Callable[[dict[str, Any]], None]:
    """Return a function that makes a JSON schema require exactly one of the keys."""

    # null counts as left out, so that an override can remove a key
    def require_one(schema: dict[str, Any]) -> None:
        schema["oneOf"] = [
            {"required": [key], "properties": {key: {"not": {"type": "null"}}}} for key in keys
        ]

    return require_one


_FunctionPath = Annotated[
    str, StringConstraints(pattern=r"^([A-Za-z_]\w*(\.[A-Za-z_]\w*)*:)?[A-Za-z_]\w*$")
]

# made absolute here, because a process of another runtime has another working directory
_FunctionFile = Annotated[PathField, AfterValidator(Path.absolute)]


def _check_place(file: Path | None, function: str) -> None:
    if (":" in function) == (file is not None):
        raise ValueError(
            "expected `file` and a NAME as `function`, or package.module:NAME as `function` "
            f"without `file`, found {function!r}"
        )


class ServiceReference(Strict):
    """A service for calls: a Python function, a model of the pipeline, or an HTTP server."""

    model_config = ConfigDict(json_schema_extra=one_of("function", "model", "http"))
    file: _FunctionFile | None = Field(
        default=None, description="Python file; left out when function is package.module:NAME."
    )
    function: _FunctionPath | None = Field(
        default=None, description="NAME in the file, or package.module:NAME."
    )
    model: str | None = Field(
        default=None, description="A name in `models`; inputs and outputs are arrays by name."
    )
    http: str | None = Field(
        default=None, description="URL to which the call is posted; the server answers with JSON."
    )
    token_file: PathField | None = Field(
        default=None, description="For `http`: file of a bearer token, read again when it changes."
    )
    timeout_ms: DurationMs = Field(
        default=10_000, alias="timeout", ge=1, le=3_600_000, description="Timeout of one attempt."
    )
    attempts: StrictInt | None = Field(
        default=None,
        ge=1,
        le=100,
        description="Most attempts, after timeouts, lost connections, 429 and 5xx; 3 for `http`, "
        "else 1.",
    )
    backoff_ms: DurationMs = Field(
        default=100,
        alias="backoff",
        le=60_000,
        description="Pause before the second attempt; it doubles before each further attempt.",
    )
    concurrency: StrictInt = Field(
        default=4, ge=1, le=64, description="Calls answered at the same time."
    )

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        kinds = [each for each in ("function", "model", "http") if getattr(self, each) is not None]
        if len(kinds) != 1:
            raise ValueError(
                "expected one of `function` (of Python, with `file` or as package.module:NAME), "
                f"`model` and `http`, found {' and '.join(kinds) or 'none of them'}"
            )
        for key, kind in (("file", "function"), ("token_file", "http")):
            if getattr(self, key) is not None and kind not in kinds:
                raise ValueError(f"{to_camel(key)}: is for `{kind}`")
        if self.function is not None:
            _check_place(self.file, self.function)
        if self.http is not None:
            _check_url(self.http)
        return self


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or "@" in parts.netloc or not url.isascii() or not url.isprintable():
        raise ValueError(
            f"http: expected http://HOST[:PORT]/PATH or https://..., without a user, found {url!r}"
        )


class ModelReference(Strict):
    """A model of the host: an ONNX file, or a Python function of numpy arrays."""

    model_config = ConfigDict(json_schema_extra=one_of("function", "onnx"))
    onnx: PathField | None = Field(
        default=None, description="ONNX file; the tensor engine runs it."
    )
    backend: Literal["numpy", "reference", "cupy"] = Field(
        default="numpy", description="Backend of the tensor engine, for `onnx`; cupy uses a GPU."
    )
    threads: StrictInt | None = Field(
        default=None,
        ge=1,
        le=1_024,
        description="Threads of matrix products, for `onnx`; 1 when left out, if numpy's library "
        "can be told.",
    )
    batch: StrictInt | None = Field(
        default=None,
        ge=16,
        le=4_096,
        multiple_of=16,
        description="Rows of each evaluation, collected from many runs; for `onnx`.",
    )
    file: _FunctionFile | None = Field(
        default=None, description="Python file; left out when function is package.module:NAME."
    )
    function: _FunctionPath | None = Field(
        default=None, description="NAME in the file, or package.module:NAME."
    )

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        if (self.onnx is None) == (self.function is None):
            which = "none of them" if self.onnx is None else "both"
            raise ValueError(
                "expected either `onnx` (a file) or `function` (of Python, with `file` or as "
                f"package.module:NAME), found {which}"
            )
        if self.onnx is not None and self.file is not None:
            raise ValueError("file: is for `function`; the ONNX file stands in `onnx`")
        for key in ("backend", "threads", "batch"):
            if self.onnx is None and key in self.model_fields_set:
                raise ValueError(f"{key}: is for `onnx`; a function has none")
        if self.function is not None:
            _check_place(self.file, self.function)
        return self
