"""``spec.engine``: actors of Ray that run a pipeline's ONNX models."""

from typing import Annotated

from pydantic import AfterValidator, Field, StrictFloat, StrictInt

from walle_stream.spec.strict import Strict

ACTORS_MAX = 256


def _as_ray_counts(share: float) -> float:
    if share > 1 and share != int(share):
        raise ValueError(f"expected a part of one, or a whole number, found {share:g}")
    if 0 < share < _SHARE_MIN:
        raise ValueError(f"expected 0, or at least {_SHARE_MIN:g}, found {share:g}")
    return share


_SHARE_MIN = 0.0001  # the smallest share that Ray can count
Share = Annotated[StrictFloat, Field(ge=0, le=1_024), AfterValidator(_as_ray_counts)]
"""An amount of a Ray resource: a fraction below 1, or a whole number."""


class EngineSpec(Strict):
    """Actors of Ray that run the pipeline's ONNX models for all hosts."""

    actors: StrictInt = Field(ge=1, le=ACTORS_MAX, description="Processes that run models.")
    cpus: Share = Field(
        default=1.0, description="Cores that Ray reserves for each actor; 0.5 is half a core."
    )
    gpus: Share = Field(
        default=0.0,
        description="GPUs that Ray reserves for each actor; with 0.25 four actors share one. For "
        "models with `backend: cupy`.",
    )
    threads: StrictInt | None = Field(
        default=None,
        ge=1,
        le=1_024,
        description="Threads of matrix products, for models without `threads`, in hosts, too; 1 "
        "when left out, if numpy's library can be told.",
    )
    in_flight: StrictInt = Field(
        default=2,
        ge=1,
        le=64,
        description="Most requests that an actor computes at a time; others wait in a queue.",
    )

    def check_backends(self, backends: set[str]) -> None:
        """Refuse actors without models to run, or with GPUs that do not fit the models.

        Raises:
            ValueError: The actors do not fit; the message names the key.
        """
        if not backends:
            raise ValueError("engine: it runs ONNX files, and spec.models names none")
        if self.gpus and "cupy" not in backends:
            raise ValueError("engine.gpus: no model has `backend: cupy`, others use no GPU")
        if "cupy" in backends and not self.gpus:
            raise ValueError(
                "engine: a model has `backend: cupy`: say with gpus how much of a GPU each actor "
                "gets, 0.25 for four to share one"
            )
