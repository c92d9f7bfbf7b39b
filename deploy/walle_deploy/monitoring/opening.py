"""Has alarms looked at, for a process that watches."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from walle_deploy.monitoring.alarms import AlarmBoard
from walle_deploy.monitoring.definition import AlarmsSpec
from walle_deploy.monitoring.watch import AlarmWatch, Seen, WatchOptions
from walle_deploy.monitoring.webhook import Webhook

_S: Final = 1_000


@contextmanager
def watching(
    seen: Seen, alarms: AlarmsSpec, board: AlarmBoard, options: WatchOptions | None = None
) -> Iterator[None]:
    """Watch; blocks on the store, at the end also on what waits for the webhook.

    Args:
        seen: What is looked at.
        alarms: How often, and where messages go.
        board: Of their rules.
        options: Of the watch.

    Yields:
        Nothing.
    """
    with ExitStack() as stack:
        hook = alarms.webhook
        webhook = Webhook(hook.url, hook.secret.encode(), hook.options)
        stack.callback(webhook.close)
        watch = AlarmWatch(seen, board, webhook.send, alarms.every / _S, options)
        stack.callback(watch.close)
        yield
