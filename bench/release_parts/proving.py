"""The same devices with tokens, and a service that believes no one else."""

from pathlib import Path
from typing import Final

from walle_deploy.identity.signing import SigningKey

_VALID_S: Final = 86_400
_SETUP: Final = """\
apiVersion: walle/v1
kind: ReleaseService
metadata: {name: bench}
spec:
  authentication: {mode: tokens, keys: keys.json, issuer: bench}
  # nobody is refused: few devices stand for very many
  budgets: {device: {checks: 100000}}
"""


def set_up_tokens(folder: Path) -> tuple[Path, SigningKey]:
    """Write a service's set-up, and return it with the key that its devices' tokens have.

    Args:
        folder: Gets the set-up and the public key.
    """
    key = SigningKey.create("bench")
    key.write(folder / "signing.json", folder / "keys.json")
    file = folder / "service.yaml"
    file.write_text(_SETUP)
    return file, key


def with_token(request: bytes, key: SigningKey, device: str) -> bytes:
    """Return a request with a device's token.

    Args:
        request: A whole one.
        key: Signs.
        device: Who asks.
    """
    token = key.sign("device", device, _VALID_S).encode()
    return request[:-2] + b"authorization: Bearer " + token + b"\r\n\r\n"
