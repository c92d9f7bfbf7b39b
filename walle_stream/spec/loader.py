"""Loader of definitions: files and overrides in, validated models out.

All problems end in one ``SpecFileError`` line with the place of the first problem and
the number of the others. The loader opens YAML files only. It checks that scripts exist,
and the caller reads packages. Place in the data flow: ``cli`` and ``app`` call it before
anything else happens.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Never, Protocol, Self

from pydantic import BaseModel

from walle_stream.errors import SpecFileError, WalleError
from walle_stream.spec.annotations import known_keys
from walle_stream.spec.document import Document, Key, shown
from walle_stream.spec.messages import Problem, Refused, refuse, validate
from walle_stream.spec.models import (
    API_VERSION,
    DeadLettersSpec,
    Pipeline,
    SinkSpec,
    SourceSpec,
    Task,
    TaskReference,
    TunnelSpec,
)
from walle_stream.spec.nodes import read_documents
from walle_stream.spec.overrides import apply_override
from walle_stream.spec.places import find_shared
from walle_stream.spec.references import ModelReference, ServiceReference
from walle_stream.spec.strict import Strict
from walle_stream.spec.suggestions import nearest, suggest

ISOLATION: Final = "spec.isolation.require"
"""Key of a task's isolation requirements in ``LoadedPipeline.places``."""

_KINDS: Final = ("Pipeline", "Task")
_REFERENCES: Final = tuple(TaskReference.model_fields)
# methods of a collection of models, for each part except the source
_FINDERS: Final = {"tunnel": "of_tunnel", "deadLetters": "of_dead_letters", "sinks": "of_sink"}
_DEFAULT_TUNNEL: Final = str(TunnelSpec.model_fields["connector"].default)


class Packaged(Protocol):
    """The part of a package's reading that the loader needs."""

    @property
    def name(self) -> str:
        """The task's name."""


@dataclass(frozen=True, slots=True)
class UnreadPackage:
    """A package for callers that do not need its contents."""

    name: str
    """The file's name without its suffix."""

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """Name a package without opening it; serves as ``read_package`` of ``load_pipeline``."""
        return cls(path.stem)


@dataclass(frozen=True, slots=True)
class LoadedPipeline[P: Packaged = Never]:
    """A checked pipeline with its tasks."""

    pipeline: Pipeline
    tasks: tuple[Task | P, ...]
    """In the order of ``spec.tasks``; scripts have absolute paths."""
    source: BaseModel
    """The connector's model of ``spec.source``."""
    tunnel: BaseModel | None
    """The connector's model of ``spec.tunnel``; None for the default connector if the
    caller gave no model of it."""
    file: Path
    masked_values: frozenset[str]
    """Values from the environment, which must never be logged."""
    dead_letters: BaseModel | None = None
    """The connector's model of ``spec.deadLetters``, if the pipeline has it."""
    sinks: Mapping[str, BaseModel] = field(default_factory=dict)
    """Connectors' models of ``spec.sinks``, by name."""
    places: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """``FILE:LINE:COLUMN`` by task name and text: of trigger ids, pages and ``ISOLATION``.
    An empty task name has the source's keys."""


def load_pipeline[P: Packaged = Never](
    file: Path,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
    connector_models: Mapping[str, type[BaseModel]] | None = None,
    *,
    look_for_scripts: bool = False,
    read_package: Callable[[Path], P] | None = None,
) -> LoadedPipeline[P]:
    """Load a pipeline and the tasks that it names.

    Overrides ``a.b=c`` are applied in order. ``connector_models`` has the keys of each connector.
    ``look_for_scripts`` refuses missing scripts, at their place in the YAML. An error of
    ``read_package`` names the package's place in the YAML; None refuses packages.

    Raises:
        SpecFileError: The definition is wrong; the message names the place.
    """
    # not `or`, because it would ask models that load at first use for their length
    models = {} if connector_models is None else connector_models
    loading = _Loading(file, environ, models, look_for_scripts=look_for_scripts)
    return loading.pipeline(overrides, read_package or _refuse_package)


def load_task(file: Path, environ: Mapping[str, str] = os.environ) -> Task | None:
    """Load a file that holds one task; return None when it holds anything else."""
    return _Loading(file, environ, {}).single_task()


class _NoKeys(Strict):
    pass


class _Loading:
    def __init__(
        self,
        file: Path,
        environ: Mapping[str, str],
        models: Mapping[str, type[BaseModel]],
        *,
        look_for_scripts: bool = False,
    ) -> None:
        self._file = file
        self._environ = environ
        self._models = models
        self._look_for_scripts = look_for_scripts
        self._problems: list[Problem] = []
        self._masked: set[str] = set()
        self._places: dict[tuple[str, str], str] = {}

    def pipeline[P: Packaged](
        self, overrides: Sequence[str], read_package: Callable[[Path], P]
    ) -> LoadedPipeline[P]:
        documents = self._read(self._file)
        kinds = [self._kind(document) for document in documents]
        self._check()
        pipelines = [
            document for document, kind in zip(documents, kinds, strict=True) if kind == "Pipeline"
        ]
        if len(pipelines) != 1:
            place = pipelines[1] if pipelines else documents[0]
            raise place.error((), f"expected one Pipeline in the file, found {len(pipelines)}")
        document = pipelines[0]
        for text in overrides:
            apply_override(document, text)
        pipeline = self._validate(document, Pipeline)
        source = self._connector(document, ("source",), SourceSpec)
        tunnel = self._connector(document, ("tunnel",), TunnelSpec)
        letters = self._connector(document, ("deadLetters",), DeadLettersSpec)
        sinks = {
            name: self._connector(document, ("sinks", name), SinkSpec)
            for name in (pipeline.spec.sinks if pipeline is not None else ())
        }
        parts: dict[Key, BaseModel | None] = {
            ("source",): source,
            ("tunnel",): tunnel,
            ("deadLetters",): letters,
        }
        for key, problem in find_shared(parts | {("sinks", n): each for n, each in sinks.items()}):
            self._add(document.error(key, problem))
        others = [
            document for document, kind in zip(documents, kinds, strict=True) if kind == "Task"
        ]
        defined = self._defined_tasks(others)
        references = pipeline.spec.tasks if pipeline is not None else ()
        tasks = self._referred_tasks(document, references, defined, read_package)
        if pipeline is not None:
            self._check_services(document, pipeline, getattr(tunnel, "down_problem", ""))
        if pipeline is not None and self._look_for_scripts:
            self._look_for_functions(document, "services", pipeline.spec.services)
            self._look_for_functions(document, "models", pipeline.spec.models)
        self._check()
        if pipeline is None or source is None:
            raise document.error((), "the definition is not valid")
        masked = frozenset(self._masked)
        for name in document.value["spec"]["source"]:
            self._places["", name] = document.shown_place(("spec", "source", name))
        return LoadedPipeline(
            pipeline,
            tasks,
            source,
            tunnel,
            self._file,
            masked,
            letters,
            {name: each for name, each in sinks.items() if each is not None},
            self._places,
        )

    def single_task(self) -> Task | None:
        documents = self._read(self._file)
        kinds = [self._kind(document) for document in documents]
        self._check()
        if kinds != ["Task"]:
            return None
        task = self._validate(documents[0], Task)
        self._check()
        return task

    def _read(self, file: Path) -> list[Document]:
        documents = read_documents(file, self._environ)
        for document in documents:
            self._masked |= document.masked
        return documents

    def _kind(self, document: Document) -> str | None:
        value = document.value
        if not isinstance(value, dict):
            self._add(document.error((), f"expected a mapping, found {shown(value)}"))
            return None
        is_known = True
        for key, allowed in (("apiVersion", [API_VERSION]), ("kind", _KINDS)):
            if key not in value:
                is_known = False
                self._add(_missing(document, key))
            elif value[key] not in allowed:
                is_known = False
                hint = suggest(value[key], allowed) if isinstance(value[key], str) else ""
                self._add(document.error((key,), f"unknown {key} {shown(value[key])}{hint}"))
        return str(value["kind"]) if is_known else None

    # Tasks

    def _defined_tasks(self, documents: Sequence[Document]) -> dict[str, Task | None]:
        defined: dict[str, Task | None] = {}
        for document in documents:
            task = self._validate(document, Task)
            # a wrong task still has a name, so that a reference to it is not a second problem
            metadata = document.value.get("metadata")
            name = metadata.get("name") if isinstance(metadata, dict) else None
            if not isinstance(name, str):
                continue
            if name in defined:
                key: Key = ("metadata", "name")
                self._add(document.error(key, f"the task {name!r} is defined twice"))
            defined[name] = task
        return defined

    def _referred_tasks[P: Packaged](
        self,
        document: Document,
        references: Sequence[TaskReference],
        defined: Mapping[str, Task | None],
        read_package: Callable[[Path], P],
    ) -> tuple[Task | P, ...]:
        tasks: dict[str, Task | P] = {}
        for index, reference in enumerate(references):
            key: Key = ("spec", "tasks", index)
            task: Task | P | None
            if not self._is_one(document, key, reference):
                continue
            if reference.package is not None:
                task = self._package(document, (*key, "package"), reference.package, read_package)
            else:
                task = self._referred_task(document, key, reference, defined)
            if task is None:
                continue
            name = task.metadata.name if isinstance(task, Task) else task.name
            if name in tasks:
                self._add(document.error(key, f"the task {name!r} stands here twice"))
            tasks[name] = task
        return tuple(tasks.values())

    def _is_one(self, document: Document, key: Key, reference: TaskReference) -> bool:
        keys = [name for name in _REFERENCES if getattr(reference, name) is not None]
        if len(keys) != 1:
            named = " and ".join(map(repr, keys)) or "none of them"
            message = (
                "expected either 'task' (a name), 'file' (a path of YAML) or 'package' (a path), "
                f"found {named}"
            )
            self._add(document.error(key, message))
        return len(keys) == 1

    def _package[P: Packaged](
        self, document: Document, key: Key, file: Path, read_package: Callable[[Path], P]
    ) -> P | None:
        if not _is_there(file):
            self._add(document.error(key, _no_file(file)))
            return None
        try:
            task = read_package(file)
        except WalleError as error:
            self._add(document.error(key, error.message))
            return None
        self._places[task.name, ISOLATION] = document.shown_place(key)
        return task

    def _referred_task(
        self,
        document: Document,
        key: Key,
        reference: TaskReference,
        defined: Mapping[str, Task | None],
    ) -> Task | None:
        if reference.file is not None:
            return self._task_file(document, (*key, "file"), reference.file)
        name = str(reference.task)
        if name not in defined:
            message = f"there is no Task {name!r} in the file{suggest(name, defined)}"
            self._add(document.error((*key, "task"), message))
            return None
        return defined[name]

    def _task_file(self, document: Document, key: Key, file: Path) -> Task | None:
        try:
            documents = self._read(file)
        except SpecFileError as error:
            # an error without a line means an unreadable file: report the reference
            self._add(error if error.line else document.error(key, error.message))
            return None
        count = len(self._problems)
        kinds = [self._kind(document) for document in documents]
        if len(self._problems) > count:
            return None
        if kinds != ["Task"]:
            self._add(document.error(key, f"{file} does not hold one Task"))
            return None
        return self._validate(documents[0], Task)

    # Connectors

    def _connector(self, document: Document, key: Key, frame: type[BaseModel]) -> BaseModel | None:
        base: Key = ("spec", *key)
        section, part = document.value, key[0]
        for each in base:
            section = section.get(each, {}) if isinstance(section, dict) else None
        if not isinstance(section, dict):
            return None
        is_default = part == "tunnel" and "connector" not in section
        name = _DEFAULT_TUNNEL if is_default else section.get("connector")
        if not isinstance(name, str):
            return None
        model: type[BaseModel] | None = None
        try:
            # a connector may be both a source and a tunnel, with different keys
            model = getattr(self._models, _FINDERS.get(str(part), ""), self._models.__getitem__)(
                name
            )
        except KeyError:
            if part != "tunnel" or name != _DEFAULT_TUNNEL:
                known = getattr(self._models, "having", lambda _part: self._models)(part)
                message = f"there is no connector {name!r}{suggest(name, known)}"
                self._add(document.error((*base, "connector"), message))
                return None
        except SpecFileError as error:
            self._add(document.error((*base, "connector"), error.message))
            return None
        shared = known_keys(frame)
        own = {key: value for key, value in section.items() if key not in shared}
        validated = self._validate(document, model or _NoKeys, base, own, tuple(shared))
        return validated if model is not None else None

    # Validation and problems

    def _validate[M: BaseModel](
        self,
        document: Document,
        model: type[M],
        base: Key = (),
        value: Any = None,
        known: tuple[str, ...] = (),
    ) -> M | None:
        data = document.value if value is None else value
        folder = Path(document.file).parent
        # scripts are opened later, when the working directory may have changed
        folder = folder.absolute() if model is Task else folder
        validated = validate(Refused(document, model, base, data, known), model, folder)
        if isinstance(validated, list):
            self._problems += validated
            return None
        if isinstance(validated, Task):
            self._look_at(document, validated)
        return validated

    def _look_at(self, document: Document, task: Task) -> None:
        script = task.spec.script
        if self._look_for_scripts and not _is_there(script):
            self._add(document.error(("spec", "script"), _no_file(script)))
        name, spec = task.metadata.name, task.spec
        keys: list[tuple[str, Key]] = [
            (step, ("spec", "triggers", at, "sequence", index))
            for at, trigger in enumerate(spec.triggers)
            for index, step in enumerate(trigger.sequence)
        ]
        keys += [(page, ("spec", "pages", at)) for at, page in enumerate(spec.pages or ())]
        keys.append((ISOLATION, ("spec", "isolation", "require")))
        for text, key in keys:
            self._places.setdefault((name, text), document.shown_place(key))

    def _look_for_functions(
        self,
        document: Document,
        kind: str,
        references: Mapping[str, ServiceReference] | Mapping[str, ModelReference],
    ) -> None:
        for name, reference in references.items():
            for part in ("file", "onnx"):
                file = getattr(reference, part, None)
                if file is not None and not _is_there(file):
                    self._add(document.error(("spec", kind, name, part), _no_file(file)))

    def _check_services(self, document: Document, pipeline: Pipeline, down_problem: str) -> None:
        services, models = pipeline.spec.services, pipeline.spec.models
        if services and down_problem:
            message = f"their answers cannot come down to a device: {down_problem}"
            self._add(document.error(("spec", "services"), message))
        for name, each in services.items():
            if each.model is not None and each.model not in models:
                message = f"there is no model {each.model!r}{suggest(each.model, models)}"
                self._add(document.error(("spec", "services", name, "model"), message))

    def _add(self, error: SpecFileError) -> None:
        self._problems.append(Problem(error))

    def _check(self) -> None:
        if self._problems:
            refuse(self._problems, str(self._file))


def _is_there(file: Path) -> bool:
    try:
        return file.exists()
    except OSError:  # a name too long, before Python 3.14
        return False


def _no_file(file: Path) -> str:
    hint = suggest(file.name, [path.name for path in file.parent.glob(f"*{file.suffix}")])
    return f"there is no file {shown(file.name)} in {file.parent}{hint}"


def _refuse_package(file: Path) -> Never:
    raise SpecFileError(f"{file}: packages are not read here", str(file))


def _missing(document: Document, key: str) -> SpecFileError:
    others = [key for key in document.value if key not in Pipeline.model_fields]
    other = nearest(key, others, 0.7)
    if other is None:
        return document.error((), f"missing key {key!r}")
    message = f"unknown key {shown(other)}, did you mean {key!r}?"
    return document.error((other,), message, is_key=True)
