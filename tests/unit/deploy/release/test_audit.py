import sqlite3

import pytest

from walle_deploy.model.releases import VersionFiles
from walle_deploy.release.verification import need_head, verify
from walle_deploy.store.rows import AuditHead
from walle_stream.errors import IntegrityError


@pytest.fixture
def altered(store, commands, release, tmp_path):
    """Change the database past the log, then look at it."""
    commands.create(release())
    commands.pause("r", "lunch")
    commands.resume("r")

    def alter(*statements, expected=None):
        with sqlite3.connect(tmp_path / "releases.db") as connection:
            for statement in statements:
                connection.execute(statement)
        connection.close()
        with store.reading() as reading:
            if expected is not None:
                need_head(reading.audit(), expected)
            return verify(reading)

    return alter


# v1, v2 and v3 were published, v1 adopted, then the release was created, paused and resumed
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE walle_audit SET entry = replace(entry, 'lunch', 'Lunch') WHERE number = 6", "entry 6: its text is not"),
        ("UPDATE walle_audit SET entry = '{}' WHERE number = 6", "entry 6: its text is not"),
        ("UPDATE walle_audit SET hash = 'x' WHERE number = 6", "entry 6: its text is not"),
        ("UPDATE walle_audit SET release_id = 'q' WHERE number = 6", "entry 6: it was moved"),
        ("DELETE FROM walle_audit WHERE number = 2", "entry 2: it is missing"),
        ("DELETE FROM walle_audit WHERE number = 7", "ends at entry 6, but entry 7 was the last"),
        ("DELETE FROM walle_audit", "ends at entry 0, but entry 7"),
        ("UPDATE walle_head SET audit_number = 6", "ends at entry 7, but entry 6"),
        ("INSERT INTO walle_audit SELECT 8, release_id, entry, hash FROM walle_audit WHERE number = 7", "entry 8: it was moved"),
        ("UPDATE walle_releases SET state = replace(state, 'v2', 'v3')", "release 'r' differs from the log"),
        ("UPDATE walle_releases SET revision = 9", "release 'r' differs"),
        ("DELETE FROM walle_releases", "release 'r' is gone"),
        ("DELETE FROM walle_leases", None),
        ("""UPDATE walle_versions SET files = '{"shared":[],"exclusive":{"a":[]}}'""", "version 'shop/ipv@v1' differs"),
        ("DELETE FROM walle_versions WHERE version = 'v3'", "version 'shop/ipv@v3' is gone"),
        ("INSERT INTO walle_versions SELECT task, 'v9', 0, files FROM walle_versions LIMIT 1", "'shop/ipv@v9' is not in the log"),
        ("INSERT INTO walle_versions SELECT 'x/y', version, 0, files FROM walle_versions", "version 'x/y@v1' is not in the log"),
        ("UPDATE walle_audit SET entry = x'ff00' WHERE number = 6", "entry 6: .* altered: Expected `str`"),
        ("UPDATE walle_audit SET entry = CAST(x'ff00' AS TEXT) WHERE number = 6", "altered: Could not decode"),
        ("UPDATE walle_audit SET hash = x'00' WHERE number = 6", "entry 6: .* altered"),
        ("DELETE FROM walle_head", "walle_head: .* its row is missing"),
        ("UPDATE walle_head SET audit_number = 'x'", "the audit log's end: .* altered"),
        ("UPDATE walle_releases SET state = x'ff'", "release 'r': .* altered"),
        ("UPDATE walle_releases SET offer = 7, revision = 'x'", "release 'r': .* altered"),
        ("UPDATE walle_versions SET files = x'22ff22'", "shop/ipv@v1: .* altered"),
        ("UPDATE walle_versions SET task = x'ff' WHERE version = 'v3'", "a version's task: .* altered"),
        ("UPDATE walle_versions SET version = x'ff' WHERE version = 'v3'", "shop/ipv: .* altered"),
        ("UPDATE walle_stable SET version = x'ff'", "stable versions: .* altered"),
        ("UPDATE walle_stable SET version = 'v3'", "stable version of 'shop/ipv' differs"),
    ],
)  # fmt: skip
def test_whatever_is_altered_past_the_log_is_found(altered, statement, message):
    if message is None:
        assert altered(statement).number == 7
        return
    with pytest.raises(IntegrityError, match=message):
        altered(statement)
    assert IntegrityError.exit_code == 17


def test_releases_that_changed_places_are_found(altered, commands, release):
    commands.roll_back("r", "no")
    commands.create(release("later"))
    with pytest.raises(IntegrityError, match="the store has release 'later' in the place of 'r'"):
        altered("UPDATE walle_releases SET position = -position")


def test_entries_that_changed_places_are_found(altered):
    swap = (
        "UPDATE walle_audit SET number = 99 WHERE number = 6",
        "UPDATE walle_audit SET number = 6 WHERE number = 7",
        "UPDATE walle_audit SET number = 7 WHERE number = 99",
    )
    with pytest.raises(IntegrityError, match="entry 6: it was moved"):
        altered(*swap)


def test_a_log_cut_off_with_its_head_is_found_by_the_head_that_was_kept(altered, store):
    with store.reading() as reading:
        kept = reading.audit_head()
        sixth = reading.audit()[5].hash
    assert altered(expected=kept) == kept
    cut = (
        "DELETE FROM walle_audit WHERE number = 7",
        f"UPDATE walle_head SET audit_number = 6, audit_hash = '{sixth}'",  # noqa: S608 - ours
    )
    with pytest.raises(IntegrityError, match="entry 7 is not the one that was written down"):
        altered(*cut, expected=kept)
    with pytest.raises(IntegrityError, match="entry 0 is not the one"):
        altered(expected=AuditHead(0, "x"))


def test_publishing_the_same_twice_is_one_entry(store, commands):
    commands.publish("shop/ipv", "v1", VersionFiles(()))
    with store.reading() as reading:
        assert len(reading.audit()) == 4
