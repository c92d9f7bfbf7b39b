"""Wait until a job ends, and print what it printed: ADDRESS NAME SECONDS."""

import sys
import time

from ray.job_submission import JobStatus, JobSubmissionClient


def main() -> int:
    """Return 0 when it ended well, 1 when it did not, or not in time."""
    address, name, seconds = sys.argv[1:]
    client, deadline_s = JobSubmissionClient(address), time.monotonic() + float(seconds)
    while not (status := client.get_job_status(name)).is_terminal():
        if time.monotonic() > deadline_s:
            break
        time.sleep(0.2)
    print(client.get_job_logs(name))
    if status != JobStatus.SUCCEEDED:
        print(f"job {name}: {status}: {client.get_job_info(name).message}")
    return int(status != JobStatus.SUCCEEDED)


if __name__ == "__main__":
    raise SystemExit(main())
