"""Functions of the user that a pipeline names: services of the cloud, models of the host.

They are the user's own code and run unguarded in this process, beside the framework. Tasks, in
contrast, run in VMs.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from walle_stream.errors import FunctionError


def load_function(place: str, file: Path | None, function: str) -> Callable[..., Any]:
    """Import a function; runs the body of its module.

    ``place`` names the definition in errors. Without a file the function is
    ``package.module:NAME``.

    Raises:
        FunctionError: The file or module cannot be imported, or has no such function.
    """
    module_name, _, attribute = function.rpartition(":")
    where = file or module_name
    try:
        module = _from_file(file) if file else import_module(module_name)
    except Exception as error:
        raise FunctionError(
            f"{place}: {where} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    function_ = getattr(module, attribute, None)
    if not callable(function_):
        raise FunctionError(f"{place}: {where} has no function {attribute!r}")
    return function_  # type: ignore[no-any-return]


def _from_file(file: Path) -> Any:
    name = f"walle_functions.{file.resolve()}"
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError("no Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look a class's module up by name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
