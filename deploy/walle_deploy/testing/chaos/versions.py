"""Versions of the task for a world, as tags in git."""

import textwrap
from pathlib import Path

from walle_deploy.model.names import TaskRef
from walle_deploy.tasks.cloning import init_task
from walle_deploy.tasks.committing import commit_folder
from walle_deploy.tasks.groups import Group
from walle_deploy.tasks.tagging import tag_version
from walle_deploy.testing.chaos.plan import TASK, is_bad, version_name

_SCRIPT = '''\
"""One feature per finished visit of a page, with the number of the version."""


def run(ctx, page):
    """Number the visits of this device."""
    visits = ctx.state.get("visits", 0) + 1
    ctx.state.put("visits", visits)
'''
_FAILURE = """\
    if int(ctx.device_id[-7:]) % 3 == 0:
        raise ValueError("no such sensor")
"""
_FEATURE = """\
    ctx.emit({{"version": {number}, "page": page.page_id, "visit": visits}})
"""


def tag_versions(group: Path, folder: Path, count: int) -> None:
    """Make scenario, task and tags; blocks.

    Args:
        group: Folder of the repositories; made here.
        folder: Working folder; made here.
        count: Number of versions.
    """
    ref = TaskRef.parse(TASK)
    init_task(Group.parse(str(group)), ref, folder)
    # the template's test is for another script
    (folder / "test_task.py").write_text('"""No tests: devices are the test."""\n')
    for number in range(1, count + 1):
        failure = _FAILURE if is_bad(number) else ""
        text = f"{_SCRIPT}{failure}{_FEATURE.format(number=number)}"
        (folder / "script.py").write_text(textwrap.dedent(text))
        commit_folder(folder, version_name(number))
        tag_version(folder, version_name(number))
