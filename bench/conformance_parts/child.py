"""A peer's process: runs one case after the other, whatever becomes of it.

``python -m conformance_parts.child PEER QUESTION ANSWER``: for each line it reads the
question's file, runs the case, writes the answer's file and says so with a line. Runs on
the peer's Python, with the peer, numpy and msgspec alone.
"""

import importlib
import os
import resource
import sys
import warnings
from pathlib import Path

from conformance_parts.exchange import Answer, Question, read, write


def main() -> int:
    """Answer until the input ends."""
    # peers write to the standard output as they like: answers go where it led
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    # a peer that asks for too much is refused itself, and nobody else of the machine is
    half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    resource.setrlimit(resource.RLIMIT_DATA, (half, half))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    peer, asked, answered = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    evaluate = importlib.import_module(f"conformance_parts.peer_{peer}").evaluate
    for _ in sys.stdin:
        question = read(asked, Question)
        try:
            answer = Answer(evaluate(question))
        except Exception as error:  # noqa: BLE001  # whatever the peer raises is its answer
            answer = Answer([], f"{type(error).__name__}: {error}")
        write(answered, answer)
        print(file=answers, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
