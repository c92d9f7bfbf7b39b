from pathlib import Path

import pytest

pytest.importorskip("faust")

from aiokafka.errors import KafkaConnectionError
from faust.exceptions import ConsistencyError

from walle_connectors.faust.worker import translated
from walle_stream.errors import TopicError

PLACE = Path("/data/one")


@pytest.mark.parametrize(
    ("reason", "exit_code", "words"),
    [
        (KafkaConnectionError("gone"), 12, "the broker went away"),
        (ConsistencyError("four\nlines"), 6, "/data/one has more of the table than"),
        (Exception("Corruption: bad MANIFEST"), 6, "/data/one is damaged: .* a new --data-dir"),
        (Exception("IO error: No space left on device"), 8, "/data/one is on a full disk"),
        (ValueError("else"), 9, "start it again"),
        (TopicError("ours", "t"), 13, "^ours$"),
    ],
)
def test_what_ended_an_app_is_one_line_with_what_to_do(reason, exit_code, words):
    error = translated(reason, "g", PLACE)
    assert error.exit_code == exit_code
    assert "\n" not in str(error)
    with pytest.raises(type(error), match=words):
        raise error
