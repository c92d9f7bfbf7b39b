"""Files that one thread reads and others ask about."""

from threading import Thread
from types import SimpleNamespace

from walle_connectors.file_stream import FileStream


def test_who_asks_meets_no_file_that_is_half_closed(tmp_path):
    path = tmp_path / "rows"
    path.write_bytes(b"a row\n" * 100)
    stream, answers = FileStream(path), []
    opened = stream.bytes

    def ask():
        answers.append((stream.progress, stream.unread.size_bytes))

    def tell():
        raise OSError(9, "Bad file descriptor")

    def close():
        asking.start()
        asking.join(0.2)  # it waits for the end of this
        opened.close()

    asking = Thread(target=ask)
    stream.bytes = SimpleNamespace(tell=tell, close=close)
    stream.close()
    asking.join()
    assert answers == [(1.0, 0)]
