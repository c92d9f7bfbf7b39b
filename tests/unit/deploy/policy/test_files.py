import os
import sqlite3
from pathlib import Path

import pytest

from walle_deploy.model.profile import DeviceProfile
from walle_deploy.policy.attributes import Attributes, AttributeSource
from walle_deploy.policy.compact import CompactIds
from walle_deploy.policy.facts import NOBODY, Facts, Sources
from walle_deploy.policy.files import WatchedFile, read_ids, read_revoked
from walle_deploy.policy.hashing import id_hash
from walle_deploy.policy.judging import judge
from walle_deploy.policy.model import Policy
from walle_stream.errors import SpecFileError


@pytest.mark.parametrize("count", [0, 1, 2, 1_000])
def test_compact_ids_have_what_was_given_and_nothing_else(count):
    ids = CompactIds([f"d-{number}" for number in range(count)] * 2)
    assert len(ids) == count
    assert all(ids.has(id_hash(f"d-{number}")) for number in range(count))
    assert not any(ids.has(id_hash(f"x-{number}")) for number in range(1_000))


def test_of_an_id_that_is_there_twice_the_last_number_counts():
    ids = CompactIds(["a", "b", "a"], [1, 2, 3])
    assert [ids.number(id_hash(each)) for each in "abc"] == [3, 2, -1]


def test_ids_are_read_line_by_line(tmp_path):
    file = tmp_path / "ids.txt"
    file.write_text("# those\n d-1 \n\nd-2")
    assert len(read_ids(file)) == 2
    file.write_text("d-1\n" + "x" * 2_000)
    with pytest.raises(SpecFileError, match=r"ids\.txt:2:1: longer"):
        read_ids(file)


def test_no_line_of_a_list_of_revoked_ids_is_passed_over(tmp_path):
    file = tmp_path / "revoked.txt"
    ids = [
        "first",
        "# of a note",
        "#h1",
        " sp",
        "sp ",
        "\ttab",
        "  ",
        "\ufeffmark",
        "a, b",
        "\x85",
        "x",
    ]
    for begin, end in (("", "\n"), ("\ufeff", "\r\n")):
        file.write_text(begin + end.join(ids) + end, newline="")
        found = read_revoked(file)
        assert found >= set(ids)
        assert found - set(ids) <= {"\ufefffirst", "sp", "tab", "mark"}
    file.write_text("")
    assert read_revoked(file) == frozenset()
    file.write_text("d-1\n" + "x" * 2_000)
    with pytest.raises(SpecFileError, match=r"revoked\.txt:2:1: longer"):
        read_revoked(file)
    file.write_text("d-1\n", "utf-16")
    with pytest.raises(UnicodeError):
        read_revoked(file)


def test_a_mark_of_the_byte_order_is_no_part_of_an_id(tmp_path):
    file = tmp_path / "ids.txt"
    file.write_text("d-1\nd-2\n", "utf-8-sig")
    assert read_ids(file).has(id_hash("d-1"))


def test_a_file_is_read_again_when_it_changes_and_stays_known_when_it_goes(tmp_path, caplog):
    file = tmp_path / "ids.txt"
    watched = WatchedFile(file, read_ids)
    assert not watched.refresh()
    assert watched.known is None
    assert "No such file" in watched.problem
    file.write_text("a\n")
    assert watched.refresh()
    assert not watched.refresh()
    file.write_text("a\nb\n")
    assert watched.refresh()
    assert (len(watched.known), watched.problem) == (2, "")
    file.unlink()
    assert not watched.refresh()
    assert not watched.refresh()
    assert len(watched.known) == 2
    assert len(caplog.records) == 2  # once each time that it went


def test_what_may_never_end_is_not_read(tmp_path):
    pipe = tmp_path / "ids.txt"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero"), tmp_path):
        watched = WatchedFile(path, read_ids)
        assert not watched.refresh()
        assert watched.problem == f"{path}: is not a file"


def test_attributes_come_from_csv_or_sqlite(tmp_path):
    (tmp_path / "u.csv").write_text("id,area,tags\nu1,cn-east,a|b\nu2,,\n,x,y\nu3\n")
    given = {"user": "id", "region": "area", "interest_tags": "tags"}
    source = AttributeSource(file=tmp_path / "u.csv", **given)
    with sqlite3.connect(tmp_path / "u.db") as database:
        database.execute('CREATE TABLE "my users" (id, area, tags)')
        database.execute(
            "INSERT INTO \"my users\" VALUES ('u1', 'cn-east', 'a|b'), ('u2', NULL, ''), ('u3', '', '')"
        )
    database.close()
    other = AttributeSource(file=tmp_path / "u.db", format="sqlite", table="my users", **given)
    for each in (source, other):
        table = each.read(each.file)
        assert len(table) == 3
        assert table.of("u1") == Attributes("", "cn-east", frozenset("ab"))
        assert table.of("u2") == table.of("u3") == NOBODY
        assert table.of("u4") is None


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("name,region\nu,x\n", {}, "no column 'user' of users, found name, region"),
        ("", {}, "no column 'user'"),
        ("user\na\nb\n", {"users_max": 1}, "more users than usersMax: 1"),
        ('user\n"a', {}, "u.csv:2:1: unexpected end of data"),
        ("", {"format": "sqlite"}, "table 'users': no such table"),
    ],
)
def test_a_source_that_is_not_as_declared_is_refused(tmp_path, text, options, message):
    file = tmp_path / "u.csv"
    file.write_text(text)
    with pytest.raises(SpecFileError, match=message):
        AttributeSource(file=file, **options).read(file)


def truth(policy, profile, sources=None):
    facts = Facts(profile, sources or Sources(), id_hash(profile.device))
    return judge(Policy.of(policy), facts, "salt").truth


def test_what_is_not_known_is_neither_true_nor_false():
    silent = DeviceProfile("d")
    for condition in (
        *({"app": "x"}, {"appVersion": ">1"}, {"os": "x"}, {"osVersion": ">1"}, {"model": "*"}),
        *({"memory": ">1B"}, {"performance": "low"}, {"interpreter": "x"}, {"ageBand": "x"}),
        *({"region": "*"}, {"interestTags": "x"}, {"devices": {"file": "/nowhere"}}),
    ):
        assert truth(condition, silent) is None
        assert truth({"not": condition}, silent) is None
        assert truth({"exclude": [condition]}, silent) is None
        assert truth({"any": [condition, {}]}, silent) is True
        assert truth({"any": [condition, {"devices": ["x"]}]}, silent) is None
        assert truth({"all": [condition, {"devices": ["x"]}]}, silent) is False


def test_nobody_signed_in_is_no_user_of_any_list(tmp_path):
    (tmp_path / "ids").write_text("u\n")
    signed_out, signed_in = DeviceProfile("d"), DeviceProfile("d", user="u")
    for users in (["u"], {"file": str(tmp_path / "ids")}):
        assert truth({"users": users}, signed_out) is False
        assert truth({"exclude": [{"users": users}]}, signed_out) is True
        assert truth({"users": users}, signed_in) is True


def test_files_that_no_policy_names_any_more_are_let_go(tmp_path):
    (tmp_path / "a").write_text("x\n")
    sources = Sources()
    first = sources.ids(tmp_path / "a")
    sources.drop_unasked()
    assert sources.ids(tmp_path / "a") is first
    sources.drop_unasked()
    sources.drop_unasked()
    assert sources.ids(tmp_path / "a") is not first
