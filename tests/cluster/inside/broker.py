"""How scripts on the control machine reach the broker."""

from typing import Any, Final

CLIENT: Final[dict[str, Any]] = {
    "bootstrap_servers": ["kafka:9093"],
    "security_protocol": "SSL",
    "ssl_cafile": "/kit/pipeline/ca.pem",
}
"""What kafka-python's clients are made with."""
