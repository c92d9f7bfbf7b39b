"""Certificates for one run of tests: a CA, the server's key, keys of clients."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from walle_stream.errors import BrokerError

STORE_PASSWORD: Final = "of-a-test-only"  # noqa: S105 - guards keys that live for one run of tests
"""Password of the server's PKCS12 file."""

_DAYS: Final = "2"
_SERVER_NAMES: Final = "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1"


@dataclass(frozen=True, slots=True)
class ClientFiles:
    """PEM files of a client."""

    ca: Path
    """The trusted CA."""
    cert: Path
    """The client's certificate, for mutual TLS."""
    key: Path
    """The client's key, without a password, mode 0600."""


class Certificates:
    """A certificate authority in a folder, made with the command ``openssl``. For one thread.

    ``server/`` has the broker's files (``server.p12``, ``ca.pem``). All users can read them, since
    a broker in a container is another user. Only the maker can read the other files.
    """

    def __init__(self, folder: Path, *names: str) -> None:
        """Make the CA and the server's key; blocks for about 0.2 s.

        Args:
            folder: Target folder; made when missing.
            names: More names of the server, beside those of this machine.

        Raises:
            BrokerError: ``openssl`` is missing or failed.
        """
        self._folder = folder
        self.server_folder = folder / "server"
        """The files for the broker."""
        self.server_folder.mkdir(parents=True)
        self._make_ca("ca")
        self.ca = self.server_folder / "ca.pem"
        """PEM of the CA that signs the server and all clients except those of ``stranger``."""
        shutil.copyfile(folder / "ca.pem", self.ca)
        also = "".join(f",DNS:{name}" for name in names)
        self._sign("server", "localhost", "ca", extension=_SERVER_NAMES + also)
        self._openssl(
            *("pkcs12", "-export", "-name", "server", "-passout", f"pass:{STORE_PASSWORD}"),
            *("-in", "server.pem", "-inkey", "server.key", "-certfile", "ca.pem"),
            *("-out", "server/server.p12"),
        )
        for each in self.server_folder.iterdir():
            each.chmod(0o644)

    def client(self, name: str) -> ClientFiles:
        """Return a client's files, made at the first call; blocks for about 0.1 s.

        Args:
            name: Common name of the client; the broker's principal is ``User:CN=name``.

        Raises:
            BrokerError: ``openssl`` failed.
        """
        if not (self._folder / f"client-{name}.pem").exists():
            self._sign(f"client-{name}", name, "ca")
        return self._files("ca", f"client-{name}")

    def stranger(self, name: str) -> ClientFiles:
        """Return files of another CA and of a client that it signed, unknown to the broker.

        Raises:
            BrokerError: ``openssl`` failed.
        """
        if not (self._folder / f"stranger-{name}.pem").exists():
            self._make_ca(f"ca-{name}")
            self._sign(f"stranger-{name}", name, f"ca-{name}")
        return self._files(f"ca-{name}", f"stranger-{name}")

    def expired(self, name: str) -> ClientFiles:
        """Return files of a client whose certificate expired yesterday.

        Raises:
            BrokerError: ``openssl`` failed.
        """
        if not (self._folder / f"expired-{name}.pem").exists():
            self._sign(f"expired-{name}", name, "ca", days="-1")
        return self._files("ca", f"expired-{name}")

    def _files(self, ca: str, client: str) -> ClientFiles:
        folder = self._folder
        return ClientFiles(folder / f"{ca}.pem", folder / f"{client}.pem", folder / f"{client}.key")

    def _make_ca(self, name: str) -> None:
        self._openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", f"/CN=walle test {name}", "-days", _DAYS),
            # Python 3.13 and newer refuse a CA without this key usage
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
            *("-keyout", f"{name}.key", "-out", f"{name}.pem"),
        )

    def _sign(
        self, file: str, name: str, ca: str, *, extension: str = "", days: str = _DAYS
    ) -> None:
        self._openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", f"/CN={name}", "-keyout", f"{file}.key", "-out", f"{file}.csr"),
        )
        extensions = self._folder / f"{file}.ext"
        # and they refuse a certificate that does not name its issuer's key
        extensions.write_text(f"authorityKeyIdentifier=keyid\n{extension}\n")
        self._openssl(
            *("x509", "-req", "-in", f"{file}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key"),
            *("-CAcreateserial", "-days", days, "-extfile", extensions.name),
            *("-out", f"{file}.pem"),
        )

    def _openssl(self, *arguments: str) -> None:
        command = shutil.which("openssl")
        if command is None:
            raise BrokerError("certificates are made with openssl: install it")
        done = subprocess.run(  # noqa: S603 - arguments are ours, no shell
            [command, *arguments],
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
            umask=0o077,
        )
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or ["without a word"]
            raise BrokerError(f"openssl {arguments[0]} failed: {last[0]}")
