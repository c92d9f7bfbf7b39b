import os
import sys

import pytest

from walle_deploy.device import machine
from walle_deploy.device.machine import performance_class, this_machine, with_interpreter
from walle_deploy.model.profile import DeviceProfile, decode_profile, encode_profile


def test_a_machine_says_what_it_knows():
    profile = this_machine("d-1")
    assert (profile.device, profile.interpreter) == ("d-1", sys.implementation.cache_tag)
    assert profile.os == profile.os.lower() != ""
    assert profile.memory_mb > 100
    assert decode_profile(encode_profile(profile)) == profile


def test_what_it_does_not_know_is_left_empty(monkeypatch):
    monkeypatch.delattr(os, "sysconf")
    profile = machine.this_machine("d-1")
    assert (profile.memory_mb, profile.performance) == (0, "")


def test_an_interpreter_that_is_named_stays():
    assert with_interpreter(DeviceProfile("d", interpreter="x")).interpreter == "x"
    assert with_interpreter(DeviceProfile("d")).interpreter == sys.implementation.cache_tag


@pytest.mark.parametrize(
    ("memory_mb", "cpus", "expected"),
    [(0, 8, ""), (8_000, 0, ""), (2_999, 8, "low"), (8_000, 3, "low"), (3_000, 4, "middle"),
     (7_000, 8, "high"), (7_000, 7, "middle")],
)  # fmt: skip
def test_classes(memory_mb, cpus, expected):
    assert performance_class(memory_mb, cpus) == expected
