"""The command that installs an extra from the library's own origin; no package index has it."""

import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

_NAME: Final = "walle-stream"


def how_to_install(extra: str) -> str:
    """Return the command that adds an extra to this installation (PEP 610)."""
    origin = _origin()
    url = str(origin.get("url", ""))
    options = ["-e"] if origin.get("dir_info", {}).get("editable") else []
    target = f"{_NAME}[{extra}]"
    if url.startswith("file:"):
        target = f"{url2pathname(urlsplit(url).path)}[{extra}]"
    elif url:
        kind = origin.get("vcs_info", {}).get("vcs")
        target += f" @ {kind}+{url}" if kind else f" @ {url}"
    return shlex.join([sys.executable, "-m", "pip", "install", *options, target])


def _origin() -> dict[str, Any]:
    try:
        text = distribution(_NAME).read_text("direct_url.json")
    except PackageNotFoundError:
        text = None
    extras: dict[str, Any] = json.loads(text) if text else {}
    return extras
