import pytest

from walle_connectors.faust.folder import open_folder
from walle_stream.errors import StoreError, StoreLockedError


def test_a_folder_has_one_worker_at_a_time(tmp_path):
    with (
        open_folder(tmp_path / "one") as folder,
        pytest.raises(StoreLockedError, match="each needs its own") as caught,
        open_folder(folder, wait_s=0),
    ):
        pass
    assert caught.value.exit_code == 7
    with open_folder(folder, wait_s=0) as again:
        assert again == folder


def test_that_of_a_run_is_left_alone(tmp_path):
    (tmp_path / "meta.json").write_text("{}")
    with pytest.raises(StoreError, match="of walle run"), open_folder(tmp_path):
        pass
    assert [each.name for each in tmp_path.iterdir()] == ["meta.json"]


@pytest.mark.parametrize("name", ["file", "file/below", "\0"])
def test_what_cannot_be_a_folder_is_one_line(tmp_path, name):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(StoreError, match="cannot be used as data directory"),
        open_folder(tmp_path / name),
    ):
        pass
