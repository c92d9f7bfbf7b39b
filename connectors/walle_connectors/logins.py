"""A client's login at brokers (SASL): its YAML keys and client options.

Passwords and tokens are in files, so that no YAML, log or process list contains them. A file is
read whenever a client is made. A token file is read again for each connection, so that the token
can be renewed.
"""

from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from walle_stream.clock import wall_ms
from walle_stream.errors import BrokerUnreachableError
from walle_stream.spec.paths import PathField
from walle_stream.spec.strict import Strict

_OAUTH: Final = "OAUTHBEARER"
_SECRET_MAX: Final = 64 * 1024
_LOOK_S: Final = 60.0
"""Lifetime of a token as told to librdkafka, which asks again before it ends."""


class Sasl(Strict):
    """The identity of the client: a user with a password, or the subject of a token."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = Field(
        description="Mechanism of the brokers' listener; PLAIN shows the password to the broker."
    )
    username: str | None = Field(
        default=None, min_length=1, max_length=256, description="User; not for OAUTHBEARER."
    )
    password: PathField | None = Field(
        default=None, description="File with the password; not for OAUTHBEARER."
    )
    token: PathField | None = Field(
        default=None, description="OAUTHBEARER: file with a token, read again for each connection."
    )

    @model_validator(mode="after")
    def _has_its_own(self) -> Self:
        is_oauth = self.mechanism == _OAUTH
        given = {name for name in ("username", "password", "token") if getattr(self, name)}
        wanted = {"token"} if is_oauth else {"username", "password"}
        if given != wanted:
            names = " and ".join(f"`{name}`" for name in sorted(wanted, reverse=True))
            raise ValueError(f"expected {names} with {self.mechanism}, and nothing else")
        return self

    def client_options(self) -> dict[str, Any]:
        """Return keyword arguments for a client of kafka-python; reads files.

        Raises:
            BrokerUnreachableError: A file cannot be read, or is empty.
        """
        options: dict[str, Any] = {"sasl_mechanism": self.mechanism}
        if self.token is not None:
            return options | {"sasl_oauth_token_provider": _provider(self.token)}
        return options | {
            "sasl_plain_username": self.username,
            "sasl_plain_password": _secret("password", self.password),
        }

    def client_settings(self) -> dict[str, Any]:
        """Return the settings of a client of librdkafka; reads files.

        Raises:
            BrokerUnreachableError: A file cannot be read, or is empty.
        """
        settings: dict[str, Any] = {"sasl.mechanism": self.mechanism}
        if (file := self.token) is not None:
            _secret("token", file)  # a missing file must fail here, not in a thread of librdkafka
            return settings | {
                "oauth_cb": lambda _: (_secret("token", file), wall_ms() / 1_000 + _LOOK_S),
            }
        return settings | {
            "sasl.username": self.username,
            "sasl.password": _secret("password", self.password),
        }


def _provider(file: Path) -> Any:
    from kafka.net.sasl.oauth import AbstractTokenProvider  # noqa: PLC0415 - an extra

    class TokenFile(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return _secret("token", file)

        def __repr__(self) -> str:
            return f"TokenFile({str(file)!r})"

    _secret("token", file)
    return TokenFile()


def _secret(key: str, file: Path | None) -> str:
    if file is None:
        raise BrokerUnreachableError(f"`sasl.{key}` names no file")
    try:
        with file.open(encoding="utf-8") as stream:
            text = stream.read(_SECRET_MAX).strip("\r\n")
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        # a path without a file may be the secret itself, entered by mistake
        named = "" if isinstance(error, FileNotFoundError) else f", {file},"
        raise BrokerUnreachableError(
            f"`sasl.{key}` names a file{named} that cannot be read: {reason}"
        ) from error
    if not text:
        raise BrokerUnreachableError(f"{file} is empty: expected the {key} of `sasl`")
    return text
