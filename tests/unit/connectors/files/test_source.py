import gzip
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from walle_connectors.files import CONNECTOR, FilesModel, FilesSource
from walle_stream.errors import SourceChangedError, SourceError, SourceNotFoundError
from walle_stream.ports import DeclaredIds, SourceBatch

type Make = Callable[..., FilesSource]
type Read = Callable[..., list[SourceBatch]]

ROOT = Path(__file__).parents[4]
LEAST: dict[str, Any] = {
    "path": "rows.csv",
    "format": "csv",
    "device": "d",
    "time": "int(t)",
    "events": [{"kind": "exposure", "page": "'feed'"}],
}


def problem(**keys: Any) -> tuple[str, str]:
    with pytest.raises(ValidationError) as caught:
        FilesModel.model_validate(LEAST | keys)
    (error,) = caught.value.errors()
    return ".".join(str(part) for part in error["loc"]), error["msg"]


class TestModel:
    def test_connector_is_found_by_its_name(self) -> None:
        (point,) = entry_points(group="walle_stream.connectors", name="files")
        assert point.load() is CONNECTOR
        assert (CONNECTOR.name, CONNECTOR.model) == ("files", FilesModel)
        assert isinstance(CONNECTOR.open(FilesModel.model_validate(LEAST)), FilesSource)

    def test_defaults_are_those_of_a_csv_in_the_order_of_its_devices(self) -> None:
        model = FilesModel.model_validate(LEAST)
        assert (model.delimiter, model.quote, model.max_record_bytes) == (",", '"', 2**20)
        assert (model.order.scope, model.order.lateness) == ("device", 0)

    def test_units_are_understood(self) -> None:
        keys = {"order": {"lateness": "1.5h"}, "maxRecordBytes": "64KiB"}
        model = FilesModel.model_validate(LEAST | keys)
        assert (model.order.lateness, model.max_record_bytes) == (5_400_000, 65_536)

    def test_yaml_numbers_and_truth_values_are_expressions(self) -> None:
        event = {"kind": "click", "page": 5, "contents": {"price": 1.5, "is_new": True}}
        model = FilesModel.model_validate(LEAST | {"events": [event]})
        assert model.events[0].contents == {"price": "1.5", "is_new": "True"}

    @pytest.mark.parametrize(
        ("keys", "place", "reason"),
        [
            ({"colour": 1}, "colour", "Extra inputs"),
            ({"device": "d.x"}, "device", "position 1: an attribute"),
            ({"device": None}, "device", "valid string"),
            ({"let": {"a-b": "1"}}, "let.a-b.[key]", "match pattern"),
            ({"let": {"x": "eval(d)"}}, "let.x", "position 1: a call of 'eval' is not allowed"),
            ({"columns": {"t": "date"}}, "columns.t", "'str', 'int', 'float' or 'bool'"),
            ({"events": []}, "", "events: a source without events"),
            ({"events": [{"kind": "tap", "page": "d"}]}, "events.0.kind", "page_enter"),
            ({"order": {"scope": "user"}}, "order.scope", "'global' or 'device'"),
            ({"order": {"lateness": "soon"}}, "order.lateness", "a duration like"),
            ({"maxRecordBytes": "1 Mio"}, "maxRecordBytes", "a size like"),
            ({"maxRecordBytes": 5}, "maxRecordBytes", "greater than or equal to 64"),
            ({"delimiter": ",,"}, "", "delimiter: ',,' is not one character"),
            ({"delimiter": "\n"}, "", "delimiter: "),
            ({"quote": ","}, "", "quote: "),
            ({"explode": "x"}, "", "explode: only for format jsonl"),
            ({"format": "jsonl", "columns": {"t": "int"}}, "", "columns: only for format csv"),
            ({"time": "t"}, "", "time: it is not an integer of milliseconds"),
        ],
    )
    def test_wrong_key_is_named_with_the_reason(
        self, keys: dict[str, Any], place: str, reason: str
    ) -> None:
        found_place, found = problem(**keys)
        assert found_place == place
        assert reason in found

    def test_each_needs_two_names(self) -> None:
        each = {"name": "x", "index": "x", "in": "split(d, ',')"}
        place, reason = problem(events=[{"kind": "click", "page": "d", "each": each}])
        assert place == "events.0.each"
        assert "both 'x'" in reason

    def test_list_under_explode_cannot_be_used_as_a_value(self) -> None:
        _, reason = problem(format="jsonl", explode="rows", device="str(len(rows))", time="t")
        assert "device: position 9: 'rows' is the list under explode" in reason


class TestOpen:
    def test_gzip_is_recognised_by_its_content(self, make: Make, read: Read) -> None:
        (batch,) = read(make(gzip.compress(b"d,t\na,1\n") + gzip.compress(b"b,2\n")))
        assert [event.device_id for event in batch.events] == ["a", "b"]

    def test_byte_order_mark_is_no_part_of_the_first_column(self, make: Make, read: Read) -> None:
        (batch,) = read(make("\ufeffd,t\na,1\n"))
        assert next(iter(batch.events)).device_id == "a"

    def test_missing_file_is_named(self, tmp_path: Path) -> None:
        source = FilesSource(FilesModel.model_validate(LEAST | {"path": tmp_path / "gone.csv"}))
        for call in (lambda: source.fingerprint, lambda: source.open({}, 1, 1)):
            with pytest.raises(SourceNotFoundError, match=r"gone\.csv.*correct spec\.source\.path"):
                call()

    def test_folder_is_no_file(self, tmp_path: Path) -> None:
        source = FilesSource(FilesModel.model_validate(LEAST | {"path": tmp_path}))
        with pytest.raises(SourceNotFoundError):
            source.open({}, 1, 1)

    def test_unknown_column_is_named_with_the_key(self, make: Make) -> None:
        with pytest.raises(SourceError, match=r"spec\.source\.device: .*did you mean 'device_id'"):
            make("device_id,t\n", device="devic_id").open({}, 1, 1)

    @pytest.mark.parametrize(
        ("content", "what"),
        [
            (b"", "is empty"),
            (b"\n", "begins with"),
            (b"\xff\n", r"begins with b'\\xff"),
            (b"x" * 200, "begins with b'xxx"),
            ("d,t\na,1\n".encode("utf-16"), "UTF-16"),
            (b"(\xb5/\xfd\x04\xff\n", "zstd"),
            (b"PK\x03\x04\xff\n", "ZIP"),
        ],
    )
    def test_file_without_a_header_is_refused(self, make: Make, content: Any, what: str) -> None:
        with pytest.raises(SourceError, match=f"no readable header line: it .*{what}"):
            make(content, maxRecordBytes=100).open({}, 1, 1)

    def test_lines_that_end_with_cr_alone_are_named(self, make: Make) -> None:
        with pytest.raises(SourceError, match=r"'d,t\\ra,1.*CR alone"):
            make("d,t\ra,1\r", device="dd").open({}, 1, 1)

    def test_damaged_gzip_is_a_source_error_at_once(self, make: Make) -> None:
        source = make(b"\x1f\x8b" + b"x" * 50)
        with pytest.raises(SourceError, match="cannot be read"):
            source.open({}, 1, 1)
        with pytest.raises(SourceError, match="cannot be read"):
            _ = source.fingerprint


class TestFingerprint:
    def test_file_may_move_grow_and_be_compressed(self, make: Make, tmp_path: Path) -> None:
        stored = make("d,t\na,1\n").fingerprint
        make("d,t\na,1\nb,2\n").check_fingerprint(stored)
        moved = make(gzip.compress(b"d,t\na,1\nc,2\n"), path=tmp_path / "moved")
        moved.check_fingerprint(stored)

    def test_only_the_beginning_is_looked_at(self, make: Make) -> None:
        rows = "".join(f"device-{n},{n}\n" for n in range(10_000))
        fingerprint = make("d,t\n" + rows).fingerprint
        assert fingerprint["head_bytes"] == 65_536
        make("d,t\n" + rows[:-5] + "7777\n").check_fingerprint(fingerprint)

    @pytest.mark.parametrize(
        ("content", "keys", "reason"),
        [
            ("d,t\n", {}, "it has 4 bytes, but had at least 8 before"),
            ("d,t\nb,1\n", {}, "its first 8 bytes have changed"),
            ("d,t\na,1\n", {"device": "d + 'x'"}, "maps it to events in another way"),
            ("d,t\na,1\n", {"order": {"scope": "global"}}, "in another way"),
            ("d,t\na,1\n", {"maxRecordBytes": "1KiB"}, "in another way"),
            (
                "d,t\na,1\n",
                {"format": "jsonl", "path": None},
                "its format is jsonl, but was csv before",
            ),
        ],
    )
    def test_other_content_or_mapping_is_refused(
        self, make: Make, tmp_path: Path, content: Any, keys: dict[str, Any], reason: str
    ) -> None:
        stored = make("d,t\na,1\n").fingerprint
        if "path" in keys:
            keys = keys | {"path": tmp_path / "rows.csv"}
        with pytest.raises(SourceChangedError) as caught:
            make(content, **keys).check_fingerprint(stored)
        assert reason in str(caught.value)


class TestSamples:
    def test_sample_of_kuairand_has_sessions_and_duplicates(self) -> None:
        path = ROOT / "configs/samples/kuairand_feed.csv.gz"
        assert path.stat().st_size <= 300_000
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()[1:]
        times = [int(line.split(",")[4]) for line in lines]
        assert times == sorted(times)
        identities = {tuple(line.split(",")[place] for place in (0, 1, 4)) for line in lines}
        assert (len(lines), len(identities)) == (11_288, 11_134)

    def test_credit_and_licence_lie_beside_the_samples(self) -> None:
        folder = ROOT / "configs/samples"
        readme = (folder / "README.md").read_text(encoding="utf-8")
        for word in ("KuaiRand", "OTTO", "CC BY-SA 4.0", "CC BY 4.0", "Changes made"):
            assert word in readme
        licence = (folder / "LICENSE_CC-BY-SA-4.0.txt").read_text(encoding="utf-8")
        assert licence.startswith("Attribution-ShareAlike 4.0 International")


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("given", [",", ";"])
def test_a_wrong_delimiter_says_what_was_found_and_what_would_fit(
    tmp_path: Path, delimiter: str, given: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(delimiter.join(("d", "t", "x")) + "\n")
    source = FilesSource(FilesModel.model_validate(LEAST | {"path": path, "delimiter": given}))
    if delimiter == given:
        source.open({}, 1, 1).close()
        return
    with pytest.raises(SourceError) as caught:
        source.open({}, 1, 1)
    assert f"spec.source.delimiter {delimiter!r} would give 3" in caught.value.message


def test_a_header_of_one_column_is_shown_and_one_of_several_is_not(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    source = FilesSource(FilesModel.model_validate(LEAST | {"path": path}))
    for header, is_shown in (("device", True), ("device,t", False)):
        path.write_text(f"{header}\n")
        with pytest.raises(SourceError) as caught:
            source.open({}, 1, 1)
        assert (repr(header) in caught.value.message) == is_shown


@pytest.mark.parametrize(
    ("page", "id_", "expected"),
    [
        ("'feed'", None, DeclaredIds(frozenset({"exposure"}), frozenset({"feed"}), has_other_ids=False, has_other_pages=False)),
        ("'a' if x else 'b'", "'seen'", DeclaredIds(frozenset({"seen"}), frozenset({"a", "b"}), has_other_ids=False, has_other_pages=False)),
        ("'a' if x else y", "x", DeclaredIds()),
    ],
)  # fmt: skip
def test_ids_and_pages_that_stand_in_the_definition_are_declared(
    page: str, id_: str | None, expected: DeclaredIds
) -> None:
    event = {"kind": "exposure", "page": page} | ({} if id_ is None else {"id": id_})
    source = FilesSource(FilesModel.model_validate(LEAST | {"events": [event]}))
    assert source.declared == expected
