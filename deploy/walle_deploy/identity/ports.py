"""The seam of whoever wants to know who asks."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from walle_deploy.identity.proven import Proven
from walle_deploy.policy.files import WatchedFile


class DeviceAuthenticator(Protocol):
    """Finds out who asks. One event loop; only ``watched`` is used by other threads."""

    @property
    def headers(self) -> frozenset[bytes]:
        """Those of a request that it looks at, in lower case."""
        ...

    @property
    def watched(self) -> Sequence[WatchedFile[Any]]:
        """Files that it goes by; the service reads them again when they change."""
        ...

    def prove(self, headers: Mapping[bytes, bytes], peer: str, now_s: float) -> Proven:
        """Return who asks; must not block, as it is called before each check.

        Args:
            headers: What the request has of ``headers``; of one that stands there twice both
                values, with a comma between them. Nothing of it is trusted.
            peer: Address of who connected; empty where it has none.
            now_s: Epoch seconds.

        Raises:
            IdentityError: Nobody is proven; the answer is 401.
        """
        ...
