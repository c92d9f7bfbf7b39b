"""How a broker is reached: the keys that source and tunnel have in common."""

from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from walle_stream.spec.models import PathField, Strict

_PORT_MAX: Final = 65_535


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not (host and port.isascii() and port.isdecimal() and 0 < int(port) <= _PORT_MAX):
        raise ValueError(f"expected host:port, found {text!r}")
    return text


class Tls(Strict):
    """Certificates; all of them are optional, a key needs its certificate."""

    ca: PathField | None = Field(
        default=None, description="PEM of who signed the brokers' certificates."
    )
    cert: PathField | None = Field(default=None, description="PEM of our certificate: mutual TLS.")
    key: PathField | None = Field(default=None, description="PEM of its private key.")

    @model_validator(mode="after")
    def _has_both(self) -> Self:
        if (self.cert is None) != (self.key is None):
            raise ValueError("`cert` and `key` go together")
        return self


class Connection(Strict):
    """Where the brokers are, and who we are."""

    brokers: Annotated[
        tuple[Annotated[str, AfterValidator(_address)], ...], BeforeValidator(_as_list)
    ] = Field(min_length=1, description="host:port of some brokers; also one text.")
    tls: Tls | None = Field(default=None, description="Left out: plain text.")
    client_id: str = Field(
        default="walle", min_length=1, max_length=200, description="Shown in the brokers' logs."
    )

    def client_options(self) -> dict[str, Any]:
        """Return the keyword arguments that every client of kafka-python takes."""
        options: dict[str, Any] = {
            "bootstrap_servers": list(self.brokers),
            "client_id": self.client_id,
            "security_protocol": "PLAINTEXT",
        }
        if self.tls is not None:
            files = {"cafile": self.tls.ca, "certfile": self.tls.cert, "keyfile": self.tls.key}
            options["security_protocol"] = "SSL"
            options |= {f"ssl_{name}": str(path) for name, path in files.items() if path}
        return options
