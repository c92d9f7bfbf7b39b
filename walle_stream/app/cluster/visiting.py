"""Status and control of a cluster run from another process."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from walle_stream.app.cluster.supervisor import find_supervisor, running
from walle_stream.app.figures.status import RunStatus
from walle_stream.app.ray.actors import START_TIMEOUT_MS
from walle_stream.app.ray.session import check_cluster, ray_client, ray_session
from walle_stream.errors import StoreMissingError

SCHEME: Final = "ray://"
"""Scheme of a cluster's address.

``ray://HOST:PORT/PIPELINE`` works from anywhere, through Ray's client server. Without a host it
means the cluster of ``RAY_ADDRESS``.
"""


def told_by_cluster(url: str) -> RunStatus:
    """Return the status of a run over a cluster; blocks.

    Raises:
        ClusterError: The cluster cannot be reached.
        StoreMissingError: The pipeline does not run there, or several run and the URL names none.
    """
    address, pipeline = _parts(url)
    with _joined(address) as ray:
        found = find_supervisor(ray, pipeline) if pipeline else None
        names = [] if pipeline else running(ray)
        if len(names) == 1:
            found = find_supervisor(ray, names[0])
        if found is None:
            runs = (
                f"the cluster runs {', '.join(sorted(names))}: name one, as {url.rstrip('/')}/NAME"
            )
            ended = "the cluster runs no such pipeline: it has ended, or was never started"
            raise StoreMissingError(f"{url}: {runs if names else ended}")
        status: RunStatus = ray.get(found.told.remote(), timeout=START_TIMEOUT_MS / 1000.0)
        return status


def scale(where: str, hosts: int) -> int:
    """Change the number of a running pipeline's hosts, or stop it with 0; blocks.

    ``where`` is the pipeline's name, or the URL of cluster and pipeline. Returns the new number.

    Raises:
        ClusterError: The cluster cannot be reached.
        StoreMissingError: The pipeline does not run there, or no longer.
    """
    address, pipeline = _parts(where) if where.startswith(SCHEME) else ("", where)
    with _joined(address) as ray:
        found = find_supervisor(ray, pipeline)
        if found is not None and hosts:
            count: int = ray.get(found.scale.remote(hosts), timeout=START_TIMEOUT_MS / 1000.0)
            if count:
                return count
            found = None
        if found is None:
            raise StoreMissingError(f"the cluster does not run pipeline {pipeline!r}")
        ray.get(found.stop.remote("a scale to 0 hosts"))
        ray.wait([found.wait.remote()])
        return 0


def _parts(url: str) -> tuple[str, str]:
    address, _, pipeline = url.removeprefix(SCHEME).partition("/")
    return address, pipeline


@contextmanager
def _joined(address: str) -> Iterator[Any]:
    # on a machine of the cluster no address is needed
    os.environ.setdefault("RAY_ADDRESS", "auto")
    if address not in {"", "auto"}:
        with ray_client(f"{SCHEME}{address}") as ray:
            yield ray
        return
    check_cluster(is_joined=True)
    with ray_session(0) as ray:
        yield ray
