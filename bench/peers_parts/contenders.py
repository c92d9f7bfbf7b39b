"""The contenders, with notes about each."""

from typing import Final, NamedTuple


class Contender(NamedTuple):
    """One way of doing the job."""

    name: str
    title: str
    script: str = ""
    """File in this folder; empty for walle itself."""
    requirement: str = ""
    """Requirement to install; empty if our own environment is enough."""
    pythons: tuple[str, ...] = ()
    """Versions of Python to try, the newest first; empty for our own."""
    arguments: tuple[str, ...] = ()
    note: str = ""
    driver: str = ""
    """Over Kafka: the client library that moves its records."""
    keeps_state: bool = True
    """Over Kafka: whether state and offsets survive its process."""
    also: tuple[str, ...] = ()
    """Further requirements to install for Kafka."""


_PYTHONS: Final = ("3.14", "3.13", "3.12", "3.11")

CONTENDERS: Final = (
    Contender(
        "walle",
        "walle run",
        note="state, journal, output and offset on disk in one write batch per at most 2,000 "
        "events; exactly once through kill -9. The script runs in an isolated interpreter, and "
        "features go through tunnel and cloud table",
    ),
    Contender(
        "plain",
        "plain dict loop",
        "plain.py",
        note="keeps nothing: no state on disk, no isolation, no recovery",
    ),
    Contender(
        "bytewax",
        "Bytewax",
        "bytewax_flow.py",
        "bytewax==0.21.1",
        _PYTHONS,
        note="stateful_batch without recovery: state in memory alone; time-outs at the device's "
        "next event or the end, as it has timers of the system's clock alone",
    ),
    Contender(
        "bytewax-recovery",
        "Bytewax, recovery",
        "bytewax_flow.py",
        "bytewax==0.21.1",
        _PYTHONS,
        ("recovery",),
        note="the same with recovery: state pickled into SQLite every 10 s, its default, and at "
        "the end, output truncated to it on resume",
    ),
    Contender(
        "quixstreams",
        "Quix Streams",
        "quix.py",
        "quixstreams==3.28.1",
        _PYTHONS,
        note="stateful apply over its RocksDB store, with a checkpoint every 5 s. Each event reads "
        "and writes its device's open pages as one value. There are no timers, so a marker per "
        "device ends the input. It has no mode without Kafka, so its application's loop was "
        "driven by hand, and consumer, producer and changelog cost nothing here",
    ),
    Contender(
        "faust",
        "Faust",
        "faust_stream.py",
        "faust-streaming==0.15.3",
        _PYTHONS,
        note="a stream over an iterator with dicts: its tables need Kafka, so nothing is kept; "
        "time-outs at the device's next event or the end",
    ),
)
"""In the order of the table."""
