"""Services that answer the calls of a pipeline's scripts: ``spec.services``."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any

from walle_stream.app.programs.functions import load_function
from walle_stream.app.programs.models import OnnxModel, load_models, onnx_models
from walle_stream.app.programs.programs import ReadyTask, compile_task, unpack_task
from walle_stream.cloud.http_service import HttpService
from walle_stream.cloud.service_pool import Served, ServiceCall
from walle_stream.errors import PackageError, ScriptError
from walle_stream.spec.loader import ISOLATION, LoadedPipeline
from walle_stream.spec.models import Task
from walle_stream.spec.references import ServiceReference
from walle_stream.spec.suggestions import nearest
from walle_stream.vm.program import script_error
from walle_stream.wire.bearer import TokenFile


def load_services(
    references: Mapping[str, ServiceReference], models: Mapping[str, Callable[..., Any]]
) -> dict[str, Served]:
    """Import functions, and prepare HTTP and model services; ``models`` are the pipeline's.

    Raises:
        FunctionError: A function cannot be imported.
        SpecFileError: A file holds no token.
    """
    return {
        name: Served(
            _service(f"spec.services.{name}", each, models),
            each.timeout_ms,
            each.attempts or (1 if each.http is None else 3),
            each.backoff_ms,
            each.concurrency,
        )
        for name, each in references.items()
    }


def check_calls(
    tasks: Iterable[ReadyTask],
    services: Iterable[str],
    places: Mapping[tuple[str, str], str] = MappingProxyType({}),
) -> None:
    """Refuse a script that calls an unknown service, or any service if there is none.

    ``places`` are those of ``LoadedPipeline``.

    Raises:
        ScriptError: A script has such a call; the message has its place.
    """
    names = sorted(services)
    for task in tasks:
        for name, line, column in task.program.asks:
            if name in names or (names and not name):
                continue
            close = nearest(name, names)
            hint = "" if close is None else f", did you mean {close!r}?"
            of_name = f"a call of {name!r}" if name else "ctx.call_cloud"
            text = f"no service answers {of_name}: spec.services has {', '.join(names) or 'none'}"
            refusal = script_error(task.program, line, text + hint, column)
            package = places.get((task.name, ISOLATION)) if task.package else None
            if package:
                refusal.message = f"{package}: {refusal.message}"
            raise refusal


def services_for_cloud(loaded: LoadedPipeline[Any]) -> dict[str, Served]:
    """Return the services of a pipeline whose devices run elsewhere.

    Scripts and packages are checked if they are readable here.

    Raises:
        ScriptError: A script calls a service that does not exist.
        WalleError: A service is unavailable; see ``load_services`` and ``OnnxModel.read``.
    """
    spec = loaded.pipeline.spec
    check_calls(_readable(loaded), spec.services, loaded.places)
    wanted = {each.model for each in spec.services.values()}
    models = load_models({name: each for name, each in spec.models.items() if name in wanted})
    for model in onnx_models(models).values():
        model.read()
    return load_services(spec.services, models)


class _ModelService:
    # a model whose inputs are arrays by name
    def __init__(self, model: Callable[..., Any]) -> None:
        self._model = model

    def __call__(self, call: ServiceCall) -> dict[str, Any]:
        names, outputs = self._names()
        unknown = next((name for name in call.question if name not in names), None)
        missing = next((name for name in names if name not in call.question), None)
        given = [name for name in names if name in call.question]
        if unknown is not None or given != names[: len(given)]:
            wrong = f"has no input {unknown!r}" if unknown is not None else f"needs {missing!r}"
            raise ValueError(f"the model {wrong}: its inputs are {', '.join(names)}")
        made = self._model(*(_array(name, call.question[name]) for name in given))
        arrays = made if isinstance(made, tuple) else (made,)
        shown = outputs or [str(number) for number in range(len(arrays))]
        return {name: each.tolist() for name, each in zip(shown, arrays, strict=True)}

    def _names(self) -> tuple[list[str], list[str]]:
        if isinstance(self._model, OnnxModel):
            module = self._model.read().module
            return list(module.inputs), list(module.outputs)
        return list(inspect.signature(self._model).parameters), []


def _array(name: str, value: Any) -> Any:
    # with the dtypes of ``ctx.tensor``
    import numpy as np  # noqa: PLC0415 - 0.1 s, only for models

    array = np.asarray(value)
    dtype = {"f": np.float32, "i": np.int64, "b": np.uint8}.get(array.dtype.kind)
    if dtype is None:
        raise ValueError(f"input {name!r} is no array of numbers")
    return array.astype(dtype)


def _service(
    place: str, reference: ServiceReference, models: Mapping[str, Callable[..., Any]]
) -> Callable[[ServiceCall], Any]:
    if reference.http is not None:
        token = None if reference.token_file is None else TokenFile(reference.token_file)
        return HttpService(reference.http, reference.timeout_ms / 1000.0, token)
    if reference.model is not None:
        return _ModelService(models[reference.model])
    return load_function(place, reference.file, str(reference.function))


def _readable(loaded: LoadedPipeline[Any]) -> Iterator[ReadyTask]:
    packages = [each.package for each in loaded.pipeline.spec.tasks if each.package is not None]
    scripts = [task for task in loaded.tasks if isinstance(task, Task)]
    making = [partial(compile_task, task) for task in scripts]
    making += [partial(unpack_task, file) for file in packages]
    for make in making:
        with suppress(ScriptError, PackageError):  # only the devices have this task
            yield make()
