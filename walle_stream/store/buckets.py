"""Objects in S3, Google Cloud Storage or Azure, through obstore (the extra ``cluster``)."""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import from_url

from walle_stream.errors import StoreError, StoreUnreachableError
from walle_stream.ports import ObjectStore

_CHUNK_BYTES: Final = 2**20
_PARTS_AT_ONCE: Final = 2  # of 5 MiB, for each file

_CLIENT: Final = {
    "allow_http": True,  # if the URL says so
    "connect_timeout": timedelta(seconds=5),
    "read_timeout": timedelta(seconds=20),
    "timeout": timedelta(minutes=5),  # for a whole file
}
_RETRY: Final = {
    "max_retries": 20,
    "retry_timeout": timedelta(seconds=8),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=2),
        "base": 2,
    },
}

_MORE: Final = "\n\nDebug source"
"""After this mark an error contains the request with its secret headers."""
_STATUS: Final = re.compile(r"status code: (\d{3})")
_ANSWER: Final = re.compile(r"<Code>([^<]*)</Code>\s*<Message>([^<]*)</Message>")
_BUSY: Final = {"408", "429"}
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3")
_NO_BUCKET: Final = re.compile("NoSuchBucket|InvalidBucketName|ContainerNotFound")
_NOBODY: Final = re.compile("InvalidAccessKeyId|UserNotFound")  # some servers return 404 for these
_REFUSALS: Final = (
    (_NO_BUCKET, "there is no such bucket: make it, or correct the URL"),
    (re.compile("RequestTimeTooSkewed"), "this machine's clock is wrong: set it"),
    (
        # without credentials in the environment, obstore asks the machine's own metadata address
        re.compile(r"169\.254\.169\.254|metadata\.google\.internal|metadata/identity"),
        (
            "there are no credentials: give them in the environment (AWS_ACCESS_KEY_ID, "
            "GOOGLE_APPLICATION_CREDENTIALS or AZURE_STORAGE_ACCOUNT_KEY, ...)"
        ),
    ),
    (
        re.compile("status code: 40[13]|InvalidAccessKeyId|UserNotFound"),
        "it refuses these credentials: correct them in the environment, or their permissions",
    ),
)


class BucketObjects(ObjectStore):
    """Objects below a URL such as ``s3://bucket/prefix``."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        """Check the options without any request.

        Raises:
            StoreError: A setting is missing in the environment.
        """
        self._url = url
        given = (
            {name: os.environ.get(name) for name in _ENDPOINTS} | {"endpoint": None} | {**options}
        )
        for name, endpoint in given.items():
            # obstore would panic at the first request
            if name in {*_ENDPOINTS, "endpoint"} and endpoint is not None and "://" not in endpoint:
                raise StoreError(f"{url}: {name} is no URL: give http://HOST:PORT or https://HOST")
        make: Any = from_url
        try:
            self._store = make(
                url, config=dict(options), client_options=_CLIENT, retry_config=_RETRY
            )
        except BaseError as error:
            problem = str(error).partition(_MORE)[0]
            raise StoreError(f"{url}: {problem}: check the environment") from None

    @property
    def place(self) -> str:  # noqa: D102 - inherited
        return self._url

    def put(self, name: str, source: Path) -> None:  # noqa: D102 - inherited
        with self._told():
            obstore.put(self._store, name, source, max_concurrency=_PARTS_AT_ONCE)

    def create(self, name: str, content: bytes) -> bool:  # noqa: D102 - inherited
        with self._told():
            try:
                obstore.put(self._store, name, content, mode="create")
            except AlreadyExistsError:
                return False
            return True

    def get(self, name: str) -> Iterator[bytes]:  # noqa: D102 - inherited
        with self._told(may_lack=True):
            for part in obstore.get(self._store, name).stream(min_chunk_size=_CHUNK_BYTES):
                yield bytes(part)

    def read(self, name: str, start: int, size: int) -> bytes:  # noqa: D102 - inherited
        with self._told(may_lack=True):
            return bytes(obstore.get_range(self._store, name, start=start, length=size))

    def listed(self, folder: str) -> Mapping[str, int]:  # noqa: D102 - inherited
        with self._told():
            found = obstore.list(self._store, folder)
            return {each["path"]: each["size"] for batch in found for each in batch}

    def delete(self, names: Collection[str]) -> None:  # noqa: D102 - inherited
        with self._told(), suppress(FileNotFoundError):
            if names:
                obstore.delete(self._store, list(names))

    @contextmanager
    def _told(self, *, may_lack: bool = False) -> Iterator[None]:
        try:
            yield
        except (BaseError, FileNotFoundError) as error:
            text = str(error)
            is_known = not (_NO_BUCKET.search(text) or _NOBODY.search(text))
            if may_lack and isinstance(error, FileNotFoundError) and is_known:
                raise
            raise self._explained(text.partition(_MORE)[0]) from None

    def _explained(self, said: str) -> StoreError:
        found = _ANSWER.search(said)
        answer = ": ".join(found.groups()) if found else said.rpartition(" - ")[2]
        for pattern, advice in _REFUSALS:
            if pattern.search(said):
                return StoreError(f"{self._url}: {advice} ({answer})")
        status = _STATUS.search(said)
        if status is None or status[1] in _BUSY or status[1] >= "500":
            return StoreUnreachableError(
                f"{self._url} does not answer ({answer}): check that it runs, and its address"
            )
        return StoreError(f"{self._url} refuses the request: {answer}")
