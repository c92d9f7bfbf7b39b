"""Reports of devices without a valid receipt are shown with the release of the version."""

from contextlib import closing

from rich.console import Console

from tests.unit.deploy.hasty import hasty
from tests.unit.deploy.monitoring.reporting import frame, publish, receipt, report
from walle_deploy.cli.release_view import detail
from walle_deploy.monitoring.monitor import Monitor
from walle_deploy.release.commands import ReleaseCommands
from walle_deploy.release.model import Release
from walle_deploy.release.progress import describe
from walle_deploy.store.sqlite import SqliteStore


def test_reports_without_a_valid_receipt_are_shown_with_the_release(tmp_path):
    with closing(SqliteStore(tmp_path / "releases.db")) as store:
        publish(store, "v1")
        head = {"apiVersion": "walle/v1", "kind": "Release", "metadata": {"name": "r"}}
        spec = hasty({"task": "shop/ipv", "version": "v1", "gray": []})
        ReleaseCommands(store, "ann").create(Release.model_validate({**head, "spec": spec}))
        wrong = report([("a", 1, {})])
        wrong.devices[0].receipt = receipt("b")
        Monitor(store).take([frame(1, report([("a", 1, {}), ("b", 1, {})]), wrong)])
        with store.reading() as transaction:
            progress = describe(transaction, transaction.release("r"))
    assert (progress.bare_reports, progress.wrong_reports) == (2, 1)
    console = Console(width=120)
    with console.capture() as shown:
        console.print(detail(progress))
    assert "2 reports of devices without a receipt, 1 with an invalid one" in shown.get()
