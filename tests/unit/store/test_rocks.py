from pathlib import Path

import pytest
import rocksdict

from walle_stream.errors import (
    StoreCorruptedError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreMissingError,
    TunnelClosedError,
)
from walle_stream.store.rocks import RocksErrorMap, open_rocks

PATH = Path("/data/Corruption/No space left on device/LOCK")


NO_FILE = "No such file or directory"
TEXTS = {
    "IO error: No space left on device: While appending to file: P/000004.log": StoreFullError,
    "IO error: While appending to file: P/000004.log: File too large": StoreFullError,
    "IO error: While appending to file: P/4.log: Disk quota exceeded": StoreFullError,
    "IO error: lock hold by current process, acquire time 1: P/LOCK": StoreLockedError,
    "IO error: While lock file: P/LOCK: Resource temporarily unavailable": StoreLockedError,
    f"Corruption: Can't access /9.sst: IO error: {NO_FILE}: P/9.sst": StoreCorruptedError,
    "Corruption: block checksum mismatch: stored = 1, computed = 2": StoreCorruptedError,
    f"IO error: {NO_FILE}: While opening a file: P/CURRENT: {NO_FILE}": StoreMissingError,
    "Invalid argument: P: does not exist (create_if_missing is false)": StoreMissingError,
    "IO error: While open a file for random read: P/9.sst: Too many open files": StoreError,
    "Not implemented: Not supported operation in read only mode.": StoreError,
    "something new": StoreError,
}


@pytest.mark.parametrize(("text", "kind"), TEXTS.items())
def test_every_text_becomes_one_of_our_errors(text: str, kind: type[StoreError]) -> None:
    said = text.replace("P/", f"{PATH}/")
    with pytest.raises(StoreError) as caught, RocksErrorMap(PATH):
        raise Exception(said)  # noqa: TRY002 - as rocksdict does
    assert caught.type is kind
    assert said in str(caught.value)
    assert isinstance(caught.value.__cause__, Exception)


def test_closed_database_becomes_a_store_error(tmp_path: Path) -> None:
    database = open_rocks(tmp_path / "db")
    database.close()
    with pytest.raises(StoreError, match="is closed"), RocksErrorMap(tmp_path):
        database.get(b"k")


@pytest.mark.parametrize(
    "error", [TunnelClosedError("closed"), StoreFullError("full"), KeyError("k"), TypeError("t")]
)
def test_other_errors_pass_untouched(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, RocksErrorMap(PATH):
        raise error
    assert caught.value is error


def test_one_map_serves_many_blocks() -> None:
    errors = RocksErrorMap(PATH)
    for _ in range(2):
        with errors:
            pass
        with pytest.raises(StoreCorruptedError), errors, errors:
            raise Exception("Corruption: x")  # noqa: TRY002 - as rocksdict does


def test_rocksdict_raises_what_the_map_knows() -> None:
    # a new class of error in rocksdict must be looked at
    known = {"DbClosedError"}
    names = {
        name
        for name in dir(rocksdict)
        if isinstance(getattr(rocksdict, name), type)
        and issubclass(getattr(rocksdict, name), BaseException)
    }
    assert names == known


def test_reader_changes_no_file_of_the_writer_but_the_bindings_own(tmp_path: Path) -> None:
    def stats() -> dict[str, int]:
        files = (tmp_path / "db").iterdir()
        return {file.name: file.stat().st_mtime_ns for file in files}

    database = open_rocks(tmp_path / "db")
    database[b"k"] = b"v"
    before = stats()
    reader = open_rocks(tmp_path / "db", read_only=True)
    reader.close()
    after = stats()
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert changed <= {"rocksdict-config.json"}
    database.close()
