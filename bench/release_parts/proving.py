"""How services of the bench are set up, and the tokens of who asks them."""

from pathlib import Path
from typing import Final

from walle_deploy.identity.signing import Signed, SigningKey

_VALID_S: Final = 86_400
_SETUP: Final = """\
apiVersion: walle/v1
kind: ReleaseService
metadata: {name: bench}
spec:
  # nobody is refused: few devices stand for very many
  budgets:
    device: {checks: 100000, frames: 100000, bytes: 1 GiB}
    address: {checks: 1000000, frames: 1000000, bytes: 1 GiB}
"""
_TOKENS: Final = """\
  authentication: {mode: tokens, keys: keys.json, issuer: bench}
  operators: {keys: keys.json, issuer: bench}
"""


def set_up(folder: Path) -> tuple[Path, Path, SigningKey]:
    """Write set-ups of services.

    Args:
        folder: Gets them, and the public key.

    Returns:
        The one that believes tokens, the one that asks nobody, and the key of the tokens.
    """
    key = SigningKey.create("bench")
    key.write(folder / "signing.json", folder / "keys.json")
    asking, opened = folder / "service.yaml", folder / "open.yaml"
    asking.write_text(_SETUP + _TOKENS)
    opened.write_text(_SETUP)
    return asking, opened, key


def bearer(key: SigningKey, role: Signed, name: str) -> str:
    """Return the line of a request's head that says who asks.

    Args:
        key: Signs.
        role: As what.
        name: Who.
    """
    return f"authorization: Bearer {key.sign(role, name, _VALID_S)}\r\n"
