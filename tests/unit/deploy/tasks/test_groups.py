import pytest

from walle_deploy.tasks.groups import Group, cache_folder, group_of_url
from walle_stream.errors import RefNotFoundError


def test_a_group_is_a_folder_or_the_start_of_a_url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Group.parse("group") == Group(str(tmp_path / "group"), is_local=True)
    for text in ("ssh://git@host/tasks", "https://host:8443/tasks/", "git@host:tasks", "file:///g"):
        group = Group.parse(text)
        assert not group.is_local
        assert group.url("shop") == f"{text.rstrip('/')}/shop.git"
        assert group_of_url(group.url("shop")) == (group, "shop")


def test_the_environment_names_one_when_nobody_else_does(monkeypatch):
    monkeypatch.setenv("WALLE_GROUP", "ssh://host/tasks")
    assert Group.parse(None).address == "ssh://host/tasks"
    assert Group.parse("file:///g").address == "file:///g"
    monkeypatch.delenv("WALLE_GROUP")
    with pytest.raises(RefNotFoundError, match=r"give --group FOLDER or URL, or set WALLE_GROUP"):
        Group.parse(None)


def test_a_password_is_kept_out_of_files_and_messages():
    with pytest.raises(RefNotFoundError, match="contains a password") as caught:
        Group.parse("https://ada:secret@host/tasks")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "ext::sh -c id",
        "ftp://host/x",
        "git://host/x",
        "ssh://-oProxyCommand=id/x",
        "file://",
        "fd::3",
        "a\0b",
    ],
)
def test_what_git_would_run_is_no_group(text):
    with pytest.raises(RefNotFoundError, match="names no group"):
        Group.parse(text)


def test_the_scenarios_of_a_folder_are_its_repositories(tmp_path):
    for name in ("shop.git", "otto.git", "Wrong.git", "plain", ".x.git.walle-part"):
        (tmp_path / name).mkdir()
    assert Group.parse(str(tmp_path)).scenarios() == ["otto", "shop"]
    with pytest.raises(RefNotFoundError, match="there is no group"):
        Group.parse(str(tmp_path / "none")).scenarios()
    with pytest.raises(RefNotFoundError, match="cannot be asked for its scenarios: name one"):
        Group.parse("ssh://host/tasks").scenarios()


@pytest.mark.parametrize("url", ["", "shop.git", "/group/Shop.git", "/group/.git"])
def test_an_origin_that_is_no_scenario_is_refused(url):
    with pytest.raises(RefNotFoundError, match="is not a scenario of a group"):
        group_of_url(url)


def test_the_cache_is_where_the_user_says(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg/walle/tasks"
    monkeypatch.setenv("WALLE_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
