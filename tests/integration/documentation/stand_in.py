"""What stands in front of a program that documentation calls: it runs it, or has it parse alone.

stand_in.py walle ARGUMENTS and stand_in.py python ARGUMENTS. A command is only parsed, by its real
parser, if it needs a cluster, a broker, a service or many minutes, or runs until it is stopped.
"""

import argparse
import os
import runpy
import sys
from pathlib import Path

ENDLESS = {"serve", "fleet", "repository serve"}
OF_A_BROKER = {"cloud", "device", "topics", "doctor", "replay", "dead-letters replay"}
OF_OTHER_RUNS = {"dead-letters list", "status", "scale", "release simulate"}
PARSED = ENDLESS | OF_A_BROKER | OF_OTHER_RUNS
LONG = "walle_stream.testing", "walle_deploy.testing", "tests.power"
ROWS = "500"  # of a shipped pipeline, whose whole source takes minutes


def is_parsed(words):
    under_ray = any(f"--runtime {kind}" in " ".join(words) for kind in ("ray", "cluster"))
    if "WALLE_CRASH" in os.environ:  # it is to die on its way
        return True
    return under_ray or bool({" ".join(words[:1]), " ".join(words[:2])} & PARSED)


def parse_only():
    parse = argparse.ArgumentParser.parse_args

    def parse_and_end(*arguments, **options):
        parse(*arguments, **options)
        raise SystemExit(0)

    argparse.ArgumentParser.parse_args = parse_and_end


def walle(words):
    if is_parsed(words):
        parse_only()
    elif words[:1] == ["run"] and "/" not in "".join(words[1:2]) and "--limit" not in words:
        words = [*words, "--limit", ROWS]
    return ["-m", "walle_stream.cli", *words]


def python(words):
    if words[0] == "-m" and words[1].startswith(LONG):
        parse_only()
    elif words[0] != "-m":
        assert (Path(os.environ["CLONE"]) / words[0]).is_file(), words[0]
        raise SystemExit(0)
    return words


name, *given = sys.argv[1:]
_, module, *sys.argv[1:] = {"walle": walle, "python": python}[name](given)
sys.path[:1] = ["", os.environ["CLONE"]]
runpy.run_module(module, run_name="__main__", alter_sys=True)
