"""Addresses on the command line: refused at the start, not by each request."""

from walle_deploy.model.addresses import is_url
from walle_stream.errors import SpecFileError


def need_url(option: str, text: str, *, has_path: bool) -> None:
    """Refuse what is no address of a server.

    Raises:
        SpecFileError: It is none.
    """
    if is_url(text, has_path=has_path):
        return
    wanted = "https://HOST[:PORT]/ and maybe a path" if has_path else "http://HOST:PORT, no path"
    raise SpecFileError(f"{option} {text[:200]!r}: is no address of a server: expected {wanted}")
