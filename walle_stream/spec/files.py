"""Check of the login and certificate files that connectors name, without any connection."""

from typing import Any, Protocol, runtime_checkable

from walle_stream.errors import SpecFileError, WalleError
from walle_stream.spec.loader import LoadedPipeline


@runtime_checkable
class HasFiles(Protocol):
    """A connector's model that names files; other models are not checked."""

    def check_files(self) -> None:
        """Read the files; blocks.

        Raises:
            WalleError: A file is missing, or cannot be used.
        """


def check_files(loaded: LoadedPipeline[Any]) -> None:
    """Read the files that a pipeline's connectors name; blocks.

    Raises:
        SpecFileError: A file is missing, or cannot be used; the message names the section.
    """
    file, sinks = str(loaded.file), {f"sinks.{name}": each for name, each in loaded.sinks.items()}
    parts = {"source": loaded.source, "tunnel": loaded.tunnel, "deadLetters": loaded.dead_letters}
    for key, model in {**parts, **sinks}.items():
        if isinstance(model, HasFiles):
            try:
                model.check_files()
            except WalleError as error:
                raise SpecFileError(f"{file}: spec.{key}: {error}", file) from error
