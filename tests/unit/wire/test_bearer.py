import pytest

from walle_stream.errors import SpecFileError
from walle_stream.wire.bearer import TOKEN_VARIABLE, TokenFile, bearer_headers, token_from


def replace(path, text):
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


def test_a_file_is_read_again_when_it_changes(tmp_path, caplog):
    path = tmp_path / "token"
    path.write_text("one\n")
    token = TokenFile(path)
    assert token() == "one"
    replace(path, "two")
    assert bearer_headers(token) == {"authorization": "Bearer two", "walle-token": "two"}
    # an invalid token keeps the previous one, and is logged once
    replace(path, "")
    assert (token(), token()) == ("two", "two")
    path.unlink()
    assert (token(), token()) == ("two", "two")
    assert len(caplog.records) == 2
    replace(path, "three")
    assert token() == "three"


def test_without_a_file_the_environment_may_have_it(tmp_path):
    path = tmp_path / "token"
    path.write_text("file")
    environ = {TOKEN_VARIABLE: "variable"}
    assert token_from(path, environ)() == "file"
    assert token_from(None, environ)() == "variable"
    assert token_from(None, {}) is None
    assert bearer_headers(None) == {}


@pytest.mark.parametrize(
    "text", ["", " \n", "a b", "a\nb", "a\r\nx-more: 1", "ü", "\x07", "a" * 9_000]
)
def test_what_no_header_may_hold_is_no_token(tmp_path, text):
    path = tmp_path / "token"
    path.write_text(text, newline="")
    for file, environ in ((path, {}), (None, {TOKEN_VARIABLE: text or " "})):
        with pytest.raises(SpecFileError, match="holds no token"):
            token_from(file, environ)
    with pytest.raises(SpecFileError, match="cannot be read"):
        TokenFile(tmp_path / "none")
