"""Clocks of what a thread or a process works, read from another one."""

import subprocess
import sys
from threading import Event, Thread

from walle_stream.clock import cpu_clock_of_process, cpu_clock_of_this_thread, thread_cpu_ms


def test_a_clock_of_a_thread_is_read_by_another_one():
    clocks, is_ready, may_end = [], Event(), Event()

    def work():
        sum(range(100_000))
        clocks.append((cpu_clock_of_this_thread(), thread_cpu_ms()))
        is_ready.set()
        may_end.wait()

    thread = Thread(target=work)
    thread.start()
    is_ready.wait()
    clock, worked_ms = clocks[0]
    assert clock() >= worked_ms > 0
    assert clock() < worked_ms + 10_000
    may_end.set()
    thread.join()


def test_a_clock_of_a_process_goes_with_its_work_and_outlives_it():
    code = "import sys; sum(range(1_000_000)); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        clock = cpu_clock_of_process(child.pid)
        child.stdout.readline()
        assert clock() > 1.0
        child.stdin.close()
    assert clock() >= 0.0
