"""How scripts on the control machine reach the brokers, and how many copies these keep."""

from pathlib import Path
from typing import Any, Final

_BROKERS: Final = Path(__file__).with_name("brokers").read_text().split()

CLIENT: Final[dict[str, Any]] = {
    "bootstrap_servers": _BROKERS,
    "security_protocol": "SSL",
    "ssl_cafile": "/kit/pipeline/ca.pem",
}
"""What kafka-python's clients are made with."""

COPIES: Final = len(_BROKERS)
