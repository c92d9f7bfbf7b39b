"""Files of logins and of certificates that connectors name: looked at without asking anybody."""

from typing import Any, Protocol, runtime_checkable

from walle_stream.errors import SpecFileError, WalleError
from walle_stream.spec.loader import LoadedPipeline


@runtime_checkable
class HasFiles(Protocol):
    """A connector's model that names files; others are not looked at."""

    def check_files(self) -> None:
        """Read them; blocks.

        Raises:
            WalleError: One is missing, or cannot be used.
        """


def check_files(loaded: LoadedPipeline[Any]) -> None:
    """Read the files that a pipeline's connectors name; blocks.

    Raises:
        SpecFileError: One is missing, or cannot be used; it names the section.
    """
    file, sinks = str(loaded.file), {f"sinks.{name}": each for name, each in loaded.sinks.items()}
    parts = {"source": loaded.source, "tunnel": loaded.tunnel, "deadLetters": loaded.dead_letters}
    for key, model in {**parts, **sinks}.items():
        if isinstance(model, HasFiles):
            try:
                model.check_files()
            except WalleError as error:
                raise SpecFileError(f"{file}: spec.{key}: {error}", file) from error
