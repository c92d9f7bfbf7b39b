"""Wait until the living nodes are those of the command line: SECONDS ADDRESS..."""

import sys
import time

import ray


def main() -> int:
    """Return 0 when they are, 1 when it does not come to that."""
    deadline_s, wanted = time.monotonic() + float(sys.argv[1]), set(sys.argv[2:])
    ray.init(address="auto", logging_level="error", log_to_driver=False)
    found: set[str] = set()
    while time.monotonic() < deadline_s:
        found = {each["NodeManagerAddress"] for each in ray.nodes() if each["Alive"]}
        if found == wanted:
            return 0
        time.sleep(0.1)
    print(f"alive are {sorted(found)}")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
