"""Reads the dead letters of a data directory from outside, also while a run writes it."""

from collections.abc import Iterator
from pathlib import Path

from walle_stream.actors.rows.letter_rows import decode_letter, read_letters
from walle_stream.app.queries.query import open_partitions
from walle_stream.ports import DeadLetter, KeptLetter
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
