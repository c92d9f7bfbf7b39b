"""Has alarms looked at, for a process that watches."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

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

    Yields:
        Nothing.
    """
    hook = alarms.webhook
    webhook = Webhook(hook.url, hook.secret.encode(), hook.options)
    options = replace(options or WatchOptions(), is_idle=webhook.is_idle)
    watch = AlarmWatch(seen, board, webhook.send, alarms.every / _S, options)
    try:
        yield
    finally:
        watch.close()
        webhook.close()
        watch.keep()
