"""The workloads by name, and the process that runs one of them: `python -m tests.power.workloads`."""

import os
import sys
from pathlib import Path

from tests.power.pipelines import DataDirectory, Installing, PipelineRun
from tests.power.releases import DeviceFiles, ReleaseStore, Repository

PROMISES = "promises"
"""File below the root: a line for each promise, which is a change among the others."""

WORKLOADS = {
    "pipeline-true": PipelineRun("true"),
    "pipeline-interval": PipelineRun("interval"),
    "pipeline-false": PipelineRun("false"),
    "calls-true": PipelineRun("true", asks=True),
    "calls-false": PipelineRun("false", asks=True),
    "packages": Installing(),
    "data-directory": DataDirectory(),
    "release-store": ReleaseStore(),
    "repository": Repository(),
    "device-files": DeviceFiles(),
}


def run(name, root, material, promises):
    """Run a workload; the promises go to a descriptor."""
    file = os.open(promises, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    WORKLOADS[name].run(
        Path(root), Path(material), lambda text: os.write(file, f"{text}\n".encode())
    )
    os.close(file)


if __name__ == "__main__":
    run(*sys.argv[1:])
