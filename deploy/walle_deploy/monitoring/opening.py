"""Has alarms looked at beside a monitor, for a process that watches."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from walle_deploy.monitoring.alarms import AlarmBoard
from walle_deploy.monitoring.definition import AlarmsSpec
from walle_deploy.monitoring.monitor import Monitor
from walle_deploy.monitoring.snapshots import SnapshotStore
from walle_deploy.monitoring.watch import AlarmWatch
from walle_deploy.monitoring.webhook import Webhook

_S: Final = 1_000


@contextmanager
def watching(
    monitor: Monitor,
    store: SnapshotStore,
    alarms: AlarmsSpec | None = None,
    *,
    is_active: Callable[[str, str], bool] | None = None,
) -> Iterator[None]:
    """Watch a monitor; blocks on the store, at the end also on what waits for the webhook.

    Where several workers watch, one of them has the alarms: each sees its own devices alone.

    Args:
        monitor: Is closed at the end of the block.
        store: Where its counts and the alarms are kept; stays the caller's.
        alarms: Rules, and where their messages go; none are told without.
        is_active: Whether a version should be on devices; see ``AlarmWatch``.

    Yields:
        Nothing.

    Raises:
        StoreError: The store cannot be used.
    """
    with ExitStack() as stack:
        stack.callback(monitor.close)
        if alarms is not None:
            hook = alarms.webhook
            webhook = Webhook(hook.url, hook.secret.encode(), hook.options)
            stack.callback(webhook.close)
            board = AlarmBoard(rule.rule for rule in alarms.rules)
            watch = AlarmWatch(monitor, board, webhook.send, alarms.every / _S, store, is_active)
            stack.callback(watch.close)
        yield
