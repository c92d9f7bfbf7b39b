import asyncio
import json

from starlette.requests import Request

from walle_deploy.service.bodies import BodyRoom, read_body


def read(*messages, max_bytes=4, room=None):
    left = list(messages)
    room = room or BodyRoom(100)

    async def receive():
        return left.pop(0)

    with room.share() as share:
        return asyncio.run(read_body(Request({"type": "http"}, receive), max_bytes, share)), left


def piece(body, *, is_last=False):
    return {"type": "http.request", "body": body, "more_body": not is_last}


def test_a_body_in_pieces_is_one():
    assert read(piece(b"ab"), piece(b"cd", is_last=True))[0] == b"abcd"
    assert read(piece(b"", is_last=True))[0] == b""


def test_a_body_that_is_too_long_is_answered_before_its_end():
    answer, left = read(piece(b"abc"), piece(b"de"), piece(b"f", is_last=True))
    assert (answer.status_code, answer.headers["connection"]) == (413, "close")
    assert json.loads(answer.body) == {"error": "the body has more than 4 bytes"}
    assert len(left) == 1


def test_a_client_that_hangs_up_in_the_middle_is_no_mistake_of_ours():
    answer, _ = read(piece(b"abc"), {"type": "http.disconnect"})
    assert answer.status_code == 400


def test_long_bodies_have_room_one_behind_the_other_but_not_all_at_once():
    room = BodyRoom(5)
    with room.share() as other:
        assert other.grow(3)
        answer, _ = read(piece(b"abc", is_last=True), room=room)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert read(piece(b"ab", is_last=True), room=room)[0] == b"ab"
    for _ in range(3):
        assert read(piece(b"abcd", is_last=True), room=room)[0] == b"abcd"
