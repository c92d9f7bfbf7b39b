"""Errors of sources: what is read."""

from typing import ClassVar

from walle_stream.errors.base import WalleError


class SourceError(WalleError):
    """Base of the errors of event sources.

    The source could not be read on; nothing that was committed is lost.
    """

    exit_code: ClassVar[int] = 4


class SourceChangedError(SourceError):
    """The source is not the one that the data directory was made from.

    Give the same source as before, or a new ``--data-dir``.
    """


class SourceFormatError(SourceError, ValueError):
    """A file of packed events is not what its head says, or an event does not fit one.

    Write the file again with the tool that made it; what was read before is kept.
    """


class SourceMovedError(SourceError):
    """A partition has been opened in the generation that it was placed by, or a later one.

    Its reader catches it: either this host was put out of its group and does not know, or
    the group was made anew and counts from 1 again.
    """

    def __init__(self, message: str = "", generation: int = 0) -> None:
        """Keep the generation in which it was opened last."""
        super().__init__(message)
        self.args = (message, generation)
        self.generation = generation


class SourceNotFoundError(SourceError, FileNotFoundError):
    """The source's file does not exist or cannot be opened.

    Correct ``spec.source.path``.
    """
