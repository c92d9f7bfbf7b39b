"""Two-way traffic of a campaign: calls up, replies and messages down.

A task beside the pipeline's own calls a service at each exit of a page, and gets messages. Replies
and messages arrive at any time, so they change only this task's state, and independently of their
timing. An open call is an entry until its reply, and messages are counted while they come in order.
Any other event is stored as ``wrong``, so the state differs from that of the unkilled run.
"""

from collections.abc import Mapping
from pathlib import Path
from time import sleep
from typing import Any, Final
from zlib import crc32

from walle_stream.cloud.service_pool import ServiceCall

TASK: Final = "chaos-exchange"
"""Name of the task in the campaign's pipelines."""

_SERVICE: Final = {
    "function": f"{__name__}:answer",
    "timeout": "1s",
    "concurrency": 16,
}
_HANG_S: Final = 3.0
_SLOW_S: Final = 0.3

_SCRIPT: Final = """
def run(ctx, page):
    n = ctx.state.get("asked", 0) + 1
    ctx.state.put("asked", n)
    ctx.state.put(f"waits:{ctx.call_cloud('chaos', {'n': n})}", n)
    ctx.emit({"asked": n})


def on_reply(ctx, reply):
    waits = f"waits:{reply.call}"
    n = ctx.state.get(waits)
    if n is None or not (reply.error or reply.value == {"twice": 2 * n}):
        wrong(ctx, f"call {reply.call} of {n}: {reply.value} {reply.error}")
    ctx.state.delete(waits)
    ctx.state.put("answered", ctx.state.get("answered", 0) + 1)


def on_message(ctx, message):
    told = ctx.state.get("told", 0) + 1
    if message.value != told:
        wrong(ctx, f"message {message.value} of {message.id} as the {told}th")
    ctx.state.put("told", told)


def wrong(ctx, what):
    ctx.state.put("wrong", [*ctx.state.get("wrong", []), what])
"""


def with_exchange(spec: Mapping[str, Any], folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a pipeline's spec with the task and its service, and the task's definition.

    Args:
        spec: Spec of the pipeline.
        folder: Folder for the script.
    """
    script = folder / "exchange.py"
    script.write_text(_SCRIPT)
    task = {
        "apiVersion": "walle/v1",
        "kind": "Task",
        "metadata": {"name": TASK},
        "spec": {
            "version": "1",
            "script": str(script),
            "triggers": [{"sequence": ["page_exit"]}],
        },
    }
    return {
        **spec,
        "tasks": [*spec.get("tasks", ()), {"task": TASK}],
        "services": {**spec.get("services", {}), "chaos": _SERVICE},
    }, task


def answer(call: ServiceCall) -> dict[str, int]:
    """Answer a call of the task; sometimes blocks, and sometimes beyond the call's timeout.

    Raises:
        ValueError: For some calls.
    """
    number: int = call.question["n"]
    # repeated calls get the same answer
    match crc32(f"{call.device_id}/{number}".encode()) % 40:
        case 0:
            sleep(_HANG_S)
        case 1 | 2 | 3:
            sleep(_SLOW_S)
        case 4 | 5 | 6:
            raise ValueError(number)
    return {"twice": 2 * number}
