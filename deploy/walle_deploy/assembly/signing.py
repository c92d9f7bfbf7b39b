"""Addresses of exclusive files, as the release service signs them."""

from typing import Final

from walle_deploy.distribution.signed_urls import KeyRing, UrlSigner

_FOLDER: Final = "exclusive/"


class CenSigner:
    """A ``UrlSigner`` of the service: whole addresses in, whole addresses out."""

    def __init__(self, ring: KeyRing) -> None:
        """Take the keys."""
        self._signer = UrlSigner(ring)

    def sign(self, url: str, device: str) -> str:
        """Return the signed address; never blocks.

        Args:
            url: Of the file at the CEN, with ``exclusive/`` in it.
            device: Who may use it.
        """
        place = max(url.rfind(_FOLDER), 0)
        # host and folder of the CEN are not signed: a proxy may change them
        return url[:place] + self._signer.sign(url[place:], device)
