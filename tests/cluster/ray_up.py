"""Ray on the nodes, by the commands of a user: ``ray up``, ``ray job submit``, ``ray down``."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from tests.cluster.engine import ROOT
from tests.cluster.nodes import CONTROL, HEAD, HOME, Nodes

EXAMPLE: Final = ROOT / "deploy/ray/cluster.yaml"

_UP_S: Final = 120.0
_NODES_S: Final = 90.0
# Ray's second autoscaler knows no provider `local`
_ENVIRON: Final = "RAY_UP_enable_autoscaler_v2=0"


class RayUp:
    """The cluster that ``deploy/ray/cluster.yaml`` makes of the nodes."""

    def __init__(self, nodes: Nodes, folder: Path) -> None:
        """Write the file with these nodes' addresses; starts nothing.

        Args:
            nodes: Which.
            folder: The kit's.
        """
        self._nodes = nodes
        self._folder = folder
        self.address = f"http://{nodes.address(HEAD)}:8265"
        """Of the dashboard, which takes jobs."""
        config = yaml.safe_load(EXAMPLE.read_text())
        workers = [nodes.address(name) for name in nodes.workers]
        config["provider"] |= {"head_ip": nodes.address(HEAD), "worker_ips": workers}
        config["auth"] = {"ssh_user": "root", "ssh_private_key": "~/.ssh/walle"}
        config["max_workers"] = len(workers)
        (folder / "cluster.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
        here = f"install -D -m 600 {HOME}/ssh/id ~/.ssh/walle"
        here += f" && install -D -m 600 {HOME}/token ~/.ray/auth_token"
        nodes.run(CONTROL, "sh", "-ec", here)

    def up(self) -> None:
        """``ray up``; returns when the head runs, before the workers do.

        Raises:
            EngineError: It failed; the message has all that it said.
        """
        self._control(f"ray up -y --no-config-cache {HOME}/cluster.yaml", _UP_S)

    def down(self) -> None:
        """``ray down``; the machines stay.

        Raises:
            EngineError: It failed.
        """
        self._control(f"ray down -y {HOME}/cluster.yaml", _UP_S)

    def await_nodes(self, *names: str) -> None:
        """Wait until these are the living nodes and no others; blocks.

        Args:
            names: Of machines.

        Raises:
            EngineError: It did not come to that.
        """
        wanted = [self._nodes.address(name) for name in names]
        command = ["python", f"{HOME}/inside/await_nodes.py", str(_NODES_S), *wanted]
        self._nodes.run(HEAD, *command, timeout_s=2 * _NODES_S)

    def submit(
        self, folder: str, *command: str, name: str, environ: Mapping[str, str] | None = None
    ) -> None:
        """``ray job submit --no-wait`` of a command.

        Args:
            folder: Of the kit, which becomes the job's working directory.
            command: With its arguments.
            name: The job's.
            environ: Variables of its processes, of actors too.
        """
        runtime = json.dumps({"env_vars": dict(environ or {})})
        line = f"ray job submit --no-wait --address {self.address} --submission-id {name} "
        line += f"--working-dir {HOME}/{folder} --runtime-env-json {shlex.quote(runtime)}"
        self._control(f"{line} -- {shlex.join(command)}", _UP_S)

    def await_job(self, name: str, timeout_s: float) -> str:
        """Wait until a job ends, and return all that it printed; blocks.

        Args:
            name: The job's.
            timeout_s: Longest wait.

        Raises:
            EngineError: It failed, or did not end in time.
        """
        command = ("python", f"{HOME}/inside/await_job.py", self.address, name, str(timeout_s))
        return self._nodes.run(CONTROL, *command, timeout_s=timeout_s + _UP_S).stdout

    def stop_job(self, name: str) -> None:
        """``ray job stop``: SIGTERM to what was submitted; returns when it has ended."""
        self._control(f"ray job stop --address {self.address} {name}", _UP_S)

    def _control(self, line: str, timeout_s: float) -> str:
        done = self._nodes.run(CONTROL, "sh", "-c", f"{_ENVIRON} {line} 2>&1", timeout_s=timeout_s)
        return done.stdout
