import pytest

from walle_deploy.cli.options import need_url
from walle_stream.errors import SpecFileError

HOSTS = ["http://h", "https://h:8480", "http://127.0.0.1:1/", "http://[::1]:8480"]


@pytest.mark.parametrize("text", [*HOSTS, "https://h/files/", "http://h:1/a/b"])
def test_an_address_of_a_server_is_one(text):
    need_url("--files", text, has_path=True)


@pytest.mark.parametrize(
    "text",
    [
        *("nourl", "ftp://x", "h:8480", "http://", "http:///x", "http://h:p/", "http://h:70000"),
        *(
            "http://a b/",
            "http://h/?a=b",
            "http://h/#a",
            "http://u:p@h/",
            "http://[::1",
            "http://h\n",
        ),
        "http://" + "h" * 2_048,
    ],
)
def test_what_is_none_is_refused(text):
    with pytest.raises(SpecFileError, match=r"--files .*is not the address of a server"):
        need_url("--files", text, has_path=True)


@pytest.mark.parametrize("text", HOSTS)
def test_where_no_path_may_be_a_server_alone_is_taken(text):
    need_url("--service", text, has_path=False)
    with pytest.raises(SpecFileError, match="no path"):
        need_url("--service", f"{text.rstrip('/')}/v1/check", has_path=False)
