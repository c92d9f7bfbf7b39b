"""Replay of dead letters: each record returns to its source once.

Letters come from a data directory or from a sink's archive; records go to the source or into a
file. Letters are marked some hundreds at a time, after their records are durable. After a crash in
between, those records are replayed again with the same idempotency keys.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from walle_stream.actors.rows.letter_rows import decode_letter, read_letters
from walle_stream.app.queries.query import open_partitions
from walle_stream.ports import DeadLetter, DeadLetterRoute, Holds, KeptLetter, RecordReturn
from walle_stream.store import keys
from walle_stream.store.datadir import DataDir


def dead_letters(data_dir: Path) -> Iterator[DeadLetter]:
    """Iterate over all dead letters, by partition and order of arrival."""
    for _, store in open_partitions(data_dir):
        for _, value in store.scan(keys.DEAD_LETTER_PREFIX):
            yield decode_letter(value)


def kept_letters(data_dir: Path) -> Iterator[KeptLetter]:
    """Iterate over all dead letters with their records, by partition and order of arrival."""
    meta = DataDir.open_read_only(data_dir).meta
    for partition, store in open_partitions(data_dir):
        stored = store.get(keys.INCARNATION_KEY)
        incarnation = meta.incarnation if stored is None else stored.decode()
        for number, letter in read_letters(store):
            yield KeptLetter(
                letter=letter,
                pipeline=meta.pipeline,
                incarnation=incarnation,
                partition=partition,
                number=number,
            )


MARK_EVERY: Final = 500

type Mark = Callable[[Sequence[str]], None]
"""Marks letters by their idempotency keys."""


class Wanted(msgspec.Struct, frozen=True):
    """Selection of the letters to replay."""

    pipeline: str = ""
    """Only letters of this pipeline; empty: any pipeline."""
    route: DeadLetterRoute | None = None
    task: str | None = None
    device_id: str | None = None
    limit: int | None = None
    is_again: bool = False
    """Whether to select letters that were replayed before, too."""
    takes_pages: bool = False
    """Whether the target can also use the pages of failed runs."""

    def names(self, kept: KeptLetter) -> bool:
        """Return whether a letter is selected."""
        letter = kept.letter
        return (
            self.pipeline in {"", kept.pipeline}
            and self.route in {None, letter.route}
            and self.task in {None, letter.task}
            and self.device_id in {None, letter.device_id}
        )


class ReplayReport(msgspec.Struct):
    """Counts of a replay."""

    replayed: int = 0
    """Number of letters replayed; in a dry run, of letters that would be."""
    size_bytes: int = 0
    """Bytes of their records."""
    skipped: dict[str, int] = {}
    """Number of selected letters that were not replayed, by reason."""


def replay(
    letters: Iterable[KeptLetter],
    done: set[str],
    wanted: Wanted,
    target: RecordReturn | None,
    mark: Mark,
    on_progress: Callable[[int], None],
) -> ReplayReport:
    """Replay letters; blocks.

    A letter may come several times. ``done`` has the idempotency keys of earlier replays, and gets
    the new ones. Without a target the replay is a dry run. ``mark`` takes letters whose records are
    durable; ``on_progress`` then gets the number of replayed letters.

    Raises:
        WalleError: The target or the marks failed; marked letters are done.
    """
    report = ReplayReport()
    seen: set[str] = set()
    unmarked: list[str] = []

    def settle() -> None:
        if target is not None and unmarked:
            target.flush()
            mark([*unmarked])
            unmarked.clear()

    for kept in letters:
        key = kept.idempotency_key
        if key in seen or not wanted.names(kept):
            continue
        seen.add(key)
        if wanted.limit is not None and report.replayed >= wanted.limit:
            break
        reason = _hindrance(kept, done, wanted)
        if reason:
            report.skipped[reason] = report.skipped.get(reason, 0) + 1
            continue
        if target is not None:
            target.put(kept)
            unmarked.append(key)
        report.replayed += 1
        report.size_bytes += len(kept.letter.record)
        if len(unmarked) >= MARK_EVERY:
            settle()
            on_progress(report.replayed)
    settle()
    return report


_ELSEWHERE: Final[Mapping[Holds, str]] = {
    "message": "a message from the cloud, no record of the source",
    "feature": "a record that the cloud side refused, no record of the source",
}


def _hindrance(kept: KeptLetter, done: set[str], wanted: Wanted) -> str:
    letter = kept.letter
    if letter.holds in _ELSEWHERE:
        return _ELSEWHERE[letter.holds]
    if letter.holds == "page" and not wanted.takes_pages:
        return "the page of a failed run, no record of the source: see --to"
    if not wanted.is_again and kept.idempotency_key in done:
        return "replayed before: see --again"
    if not letter.record:
        return "empty"
    if not kept.is_whole:
        return "only the beginning of the record was kept"
    return ""
