"""Wait until a pipeline has hosts at work, on all partitions: PIPELINE HOSTS SECONDS WARM-COPIES."""

import sys
import time

import ray

from walle_stream.app.cluster.supervisor import find_supervisor

_ANSWER_S = 5.0


def main() -> int:
    """Return 0 when it has, 1 when it does not come to that."""
    pipeline, hosts, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    copies = int(sys.argv[4])
    deadline_s = time.monotonic() + seconds
    ray.init(address="auto", logging_level="error", log_to_driver=False)
    found = ""
    while (found := look(pipeline, hosts, copies)) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    if found:
        print(found)
    return int(bool(found))


def look(pipeline: str, hosts: int, copies: int) -> str:
    """Return what is not as it is to be; empty where all is."""
    supervisor = find_supervisor(ray, pipeline)
    if supervisor is None:
        return "there is no supervisor"
    try:
        status = ray.get(supervisor.told.remote(), timeout=_ANSWER_S)
    except ray.exceptions.RayError as error:  # it is started again
        return f"the supervisor does not answer: {error}"
    running = {each.index for each in status.hosts if each.step == "running"}
    steps = {each.index: each.step for each in status.hosts}
    idle = [each.number for each in status.partitions if each.host not in running]
    if len(running) != hosts or idle or not status.partitions:
        return f"hosts are {steps}, of partitions {idle} nobody is the owner"
    warm = sum(each.warm_partitions for each in status.hosts)
    return f"{warm} of {copies} copies are warm" if warm < copies else ""


if __name__ == "__main__":
    raise SystemExit(main())
