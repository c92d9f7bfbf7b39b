import pytest

from walle_deploy.model.names import TaskRef
from walle_stream.errors import RefNotFoundError


def test_names_come_back_as_they_were():
    for text in ("shop/ipv", "shop/ipv@v2", "a/b-c@1.0.0-rc.1+x"):
        assert str(TaskRef.parse(text)) == text
    ref = TaskRef.parse("shop/ipv@v2")
    assert (ref.name, ref.tag) == ("shop/ipv", "ipv/v2")


@pytest.mark.parametrize(
    "text",
    [
        *("", "shop", "shop/", "/ipv", "Shop/ipv", "shop/ipv@", "a/b/c", "a/b@c/d", "a/../b"),
        *(
            "a/-b",
            "a/b@v..1",
            "a/b@v1.lock",
            "a/b@v1.",
            "a/b@ v",
            "a/b\n",
            "a/b@-v",
            "a" * 64 + "/b",
        ),
    ],
)
def test_what_is_no_name_is_refused(text):
    reason = "names no version" if "@" in text else "names no task: expected SCENARIO/TASK"
    with pytest.raises(RefNotFoundError, match=reason):
        TaskRef.parse(text)
