"""How the command's process ends."""

import subprocess
import sys

CLOSING = """
import atexit, sys, threading
from walle_stream.cli import __main__ as entry
atexit.register(print, "the interpreter ended")
ended = threading.Event()
if sys.argv[1] == "closing":
    threading.Thread(target=ended.wait, daemon=True).start()
entry._run = lambda arguments, is_process: print("done") or 8
sys.argv = ["walle", "features"]
sys.exit(entry.main())
"""


def ended(how):
    return subprocess.run(
        [sys.executable, "-c", CLOSING, how], capture_output=True, text=True, check=False
    )


def test_a_thread_that_still_closes_a_database_is_left_to_the_kernel():
    closing, quiet = ended("closing"), ended("quiet")
    assert (closing.returncode, closing.stdout) == (8, "done\n")
    assert (quiet.returncode, quiet.stdout) == (8, "done\nthe interpreter ended\n")
