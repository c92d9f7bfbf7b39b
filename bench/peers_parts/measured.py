"""A command's CPU, time and memory: ``measured.py OUT COMMAND...``, with the command's exit code.

A process of its own, and a small one: the kernel counts what a child has of its
parent's memory before it begins as the child's, so a large parent would show.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

start = time.monotonic()
process = subprocess.Popen(sys.argv[2:])
# of this child alone; the sums over all children would not do for memory
_, status, usage = os.wait4(process.pid, 0)
process.returncode = os.waitstatus_to_exitcode(status)
cost = {
    "cpu_s": usage.ru_utime + usage.ru_stime,
    "wall_s": time.monotonic() - start,
    "peak_rss_mib": usage.ru_maxrss / 1024,
}
Path(sys.argv[1]).write_text(json.dumps(cost), encoding="utf-8")
sys.exit(abs(process.returncode))
