"""Engine actors of a run over Ray: their start by the driver, and their use by hosts.

Modules of the engine are imported on demand: most pipelines have no models.
"""

import math
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from walle_stream.app.assembly import Assembly
from walle_stream.app.ray.actors import START_TIMEOUT_MS
from walle_stream.app.ray.session import Versions, check_worker, versions_here

if TYPE_CHECKING:
    from walle_stream.actors.engine.actors import EngineActors
    from walle_stream.actors.engine.pool import EngineHandles


def engine_versions() -> Versions:
    """Return the versions that an engine actor must share with the driver."""
    # another numpy may add up sums in another order
    return {**versions_here(), "numpy": version("numpy")}


def engine_needs(assembly: Assembly) -> dict[str, int]:
    """Return the arguments of ``ray_session`` for an embedded cluster with engine actors."""
    if assembly.engine is None:
        return {}
    weights_bytes = sum(blueprint.size_bytes for blueprint in assembly.blueprints.values())
    cpus = math.ceil(assembly.engine.actors * assembly.engine.cpus)
    return {"more_cpus": cpus, "more_bytes": weights_bytes}


def start_engine(
    ray: Any, stack: ExitStack, assembly: Assembly, hosts: int
) -> "EngineActors | None":
    """Start the engine actors of a pipeline, which end with the stack; never waits.

    Returns None if hosts run the models. The assembly's blueprints move to the object store.

    Raises:
        ClusterError: The cluster cannot store the models.
    """
    if assembly.engine is None:
        return None
    from walle_stream.actors.engine.actors import EngineActors  # noqa: PLC0415 - rarely needed

    actors = EngineActors(
        ray, assembly.blueprints, assembly.engine, hosts=hosts, describe=engine_versions
    )
    stack.callback(actors.close)
    assembly.blueprints = {}
    return actors


def await_engine(actors: "EngineActors", is_stopped: Callable[[], bool]) -> None:
    """Wait until the actors have their models; blocks.

    Raises:
        WalleError: An actor does not start, has other versions, or cannot run its models.
    """
    here = engine_versions()
    actors.await_ready(
        lambda name, there: check_worker(name, here, there), is_stopped, START_TIMEOUT_MS
    )


def open_engine(stack: ExitStack, assembly: Assembly, handles: "EngineHandles", index: int) -> None:
    """Let the engine actors run a host's models."""
    import ray  # noqa: PLC0415 - only where Ray runs

    from walle_stream.actors.engine.pool import EnginePool  # noqa: PLC0415 - rarely needed

    pool = EnginePool(ray, handles, first=index)
    stack.callback(pool.close)
    assembly.run_models_with(pool.models())
