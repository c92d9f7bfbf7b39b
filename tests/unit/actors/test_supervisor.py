import pytest

from walle_stream.actors.supervisor import RestartPolicy, Supervisor
from walle_stream.errors import StoreCorruptedError, VmCrashedError

pytestmark = pytest.mark.actors


class Turn:
    def __init__(self, *errors):
        self.errors = list(errors)
        self.calls = 0

    def __call__(self):
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)


def test_a_retryable_failure_restarts_and_runs_the_turn_again():
    restarts, turn = [], Turn(VmCrashedError("once"))
    supervisor = Supervisor("partition 0", lambda: restarts.append(1), RestartPolicy())
    supervisor.run(turn)
    assert (turn.calls, len(restarts), supervisor.restarts) == (2, 1, 1)


def test_a_final_failure_goes_up_at_once():
    turn = Turn(StoreCorruptedError("gone"))
    supervisor = Supervisor("partition 0", lambda: None, RestartPolicy())
    with pytest.raises(StoreCorruptedError):
        supervisor.run(turn)
    assert turn.calls == 1


def test_a_turn_that_keeps_failing_goes_up_after_the_policys_restarts():
    turn = Turn(*[VmCrashedError("again")] * 9)
    supervisor = Supervisor("partition 0", lambda: None, RestartPolicy(max_restarts=2))
    with pytest.raises(VmCrashedError):
        supervisor.run(turn)
    assert turn.calls == 3
