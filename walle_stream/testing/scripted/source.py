"""A script as a source: its identity, and opening it anywhere."""

from collections.abc import Mapping
from hashlib import blake2b

from walle_stream.errors import SourceChangedError, SourceError, SourceNotFoundError
from walle_stream.testing.scripted.gates import Gates
from walle_stream.testing.scripted.model import ScriptedModel
from walle_stream.testing.scripted.reader import ScriptedReader
from walle_stream.testing.scripted.script import read_script


class ScriptedSource:
    """Steps of one file."""

    def __init__(self, model: ScriptedModel) -> None:
        """Keep the definition; the file is not touched."""
        self._path = model.script
        self._gates = Gates(model.gates or model.script.with_name(f"{model.script.name}.gates"))

    @property
    def fingerprint(self) -> Mapping[str, str | int]:
        """The whole script's digest.

        Raises:
            SourceNotFoundError: There is no script.
            SourceError: It cannot be read.
        """
        try:
            content = self._path.read_bytes()
        except FileNotFoundError as error:
            raise SourceNotFoundError(
                f"script {str(self._path)!r} does not exist: correct spec.source.script"
            ) from error
        except OSError as error:
            raise SourceError(f"script {str(self._path)!r} cannot be read ({error})") from error
        return {"script": blake2b(content, digest_size=16).hexdigest()}

    def check_fingerprint(self, stored: Mapping[str, str | int]) -> None:
        """Refuse another script.

        Raises:
            SourceChangedError: The script differs.
        """
        if dict(stored) != dict(self.fingerprint):
            raise SourceChangedError(
                f"script {str(self._path)!r} is not the one that the data directory was made from: "
                "give the same script, or a new --data-dir"
            )

    def open(
        self,
        offsets: Mapping[int, bytes],
        partition_count: int,
        batch_events: int,
        limit: int | None = None,
    ) -> ScriptedReader:
        """Read the script and begin at the partitions' offsets; see ``ports.Source.open``.

        Raises:
            SourceError: The script is wrong, or an offset is not of it.
        """
        steps = read_script(self._path)
        return ScriptedReader(steps, self._gates, offsets, partition_count, batch_events, limit)
