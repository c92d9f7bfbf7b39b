"""Errors of event sources."""

from typing import ClassVar

from walle_stream.errors.base import WalleError


class SourceError(WalleError):
    """Base of the errors of event sources.

    The source cannot be read further. No committed data is lost.
    """

    exit_code: ClassVar[int] = 4


class SourceChangedError(SourceError):
    """The source differs from the source with which the data directory was made.

    Give the original source, or a new ``--data-dir``.
    """


class SourceFormatError(SourceError, ValueError):
    """A file of packed events contradicts its header, or an event does not fit into such a file.

    Write the file again with the tool that made it. Events read before are kept.
    """


class SourceMovedError(SourceError):
    """A partition was already opened in its placement's generation, or in a later one.

    The partition's reader catches this error. Either this host was removed from its consumer
    group and does not know, or the group was recreated and counts from 1 again.
    """

    def __init__(self, message: str = "", generation: int = 0) -> None:
        """Keep the generation in which the partition was last opened."""
        super().__init__(message)
        self.args = (message, generation)
        self.generation = generation


class SourceNotFoundError(SourceError, FileNotFoundError):
    """The source's file does not exist or cannot be opened.

    Correct ``spec.source.path``.
    """
