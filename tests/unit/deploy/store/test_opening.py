import pytest

from walle_deploy.store.opening import open_store
from walle_stream.errors import ServiceUnreachableError, SpecFileError

pytest.importorskip("psycopg", reason="the extra `deploy` is not installed")


@pytest.mark.parametrize(
    "rest",
    [
        *("[bad", "u:my%zzsecret@h/x", "h/x?nosuch=1", "h/my%00secret", "u:my secret@127.0.0.1/x"),
        *("u:my@secret@h/x", "u:my/secret@h/x", "u:1/secret@h/x"),
    ],
)
def test_what_is_no_address_of_postgresql_is_said_without_its_password(rest):
    with pytest.raises(SpecFileError, match="not valid for PostgreSQL") as caught:
        open_store(f"postgresql://{rest}")
    assert "secret" not in caught.value.message
    assert caught.value.__cause__ is None


def test_a_database_that_is_away_is_said_without_its_password():
    with pytest.raises(ServiceUnreachableError, match="port=1 dbname=x") as caught:
        open_store("postgresql://u:secret@127.0.0.1:1/x")
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    "address",
    ["POSTGRESQL://u:secret@h/x", "postgresql:/u:secret@h/x", "mysql://u:secret@h/x"],
)
@pytest.mark.parametrize("make", [False, True])
def test_another_address_is_no_file_and_is_said_without_its_password(address, make):
    with pytest.raises(SpecFileError, match="expected postgresql://USER") as caught:
        open_store(address, make=make)
    assert "secret" not in caught.value.message
