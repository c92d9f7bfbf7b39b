"""Puts an author's files on top of what others committed; nothing of either is thrown away.

Lines that only one of them changed are taken together. Where both changed the same lines both
are left in the file between marks; of a file that has no lines, the author's stays and the
others' is put beside it. Place in the flow: ``committing`` calls it for ``--rebase``.
"""

from typing import Final, Literal

import msgspec

from walle_deploy.tasks.folders import WorkingFolder
from walle_deploy.tasks.recovery import CONFLICTS_FILE, Move, move
from walle_deploy.tasks.trees import list_tree
from walle_stream.errors import ConflictError, GitError

THEIRS: Final = ".theirs"
"""Ending of the others' file beside one that cannot be merged."""

_NAMED: Final = 5


class _Conflicts(msgspec.Struct, frozen=True):
    format: Literal[1]
    files: tuple[str, ...]


def merge_files(work: WorkingFolder, mine: str, upstream: str) -> str:
    """Return the tree of a commit of one's own, merged with the one of the group.

    The folder's files are those of ``mine``, which no branch has.

    Raises:
        ConflictError: Both changed the same; the folder has both now, and is at ``upstream``.
        GitError: git cannot merge, or a merged file is none that may travel.
    """
    process = work.git.attempt("merge-tree", "--write-tree", "--name-only", "-z", upstream, mine)
    parts = process.stdout.decode(errors="replace").split("\0")
    if process.returncode == 0:
        return parts[0]
    if process.returncode != 1:
        raise GitError(f"{work.ref}: git merge-tree failed: install git 2.38 or newer")
    files = sorted({*parts[1 : parts.index("", 1)]})
    tree, beside = _keep_both(work, parts[0], files, mine, upstream)
    list_tree(work.git, tree, str(work.ref))  # it is about to be written
    text = msgspec.json.encode(_Conflicts(1, tuple(files))).decode()
    move(work, Move(work.tree_of(mine), tree, upstream, work.ref.task, upstream, text))
    marked = [name for name in files if name not in beside]
    problems = []
    if marked:
        problems.append(
            f"the same lines of {listed(marked)}: both are in the files now, between <<<<<<< and "
            ">>>>>>>: choose, take the marks out"
        )
    if beside:
        problems.append(
            f"{listed(beside)}, too: yours is there, theirs beside it as *{THEIRS}: keep one, "
            "delete the other"
        )
    raise ConflictError(f"{work.ref}: others changed {'; and '.join(problems)}; then commit again")


def refuse_conflicts(work: WorkingFolder) -> None:
    """See that the author chose where a merge left two of something.

    Raises:
        ConflictError: A mark, or a file of the others, is still there.
    """
    try:
        text = (work.git.folder / CONFLICTS_FILE).read_bytes()
    except FileNotFoundError:
        return
    for name in msgspec.json.decode(text, type=_Conflicts).files:
        path = work.folder / name
        beside = path.with_name(path.name + THEIRS)
        if beside.exists():
            raise ConflictError(
                f"{beside} is still there: move it over {path.name} if theirs is right, else "
                "delete it"
            )
        lines = path.read_bytes().splitlines() if path.is_file() else []
        if any(line.startswith(b"<<<<<<< ") for line in lines):
            raise ConflictError(
                f"{path}: still has marks of a conflict (<<<<<<<): choose, and take them out"
            )


def listed(names: list[str] | tuple[str, ...]) -> str:
    """Return the first of some names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}" or "nothing"


def _keep_both(
    work: WorkingFolder, tree: str, files: list[str], mine: str, upstream: str
) -> tuple[str, list[str]]:
    grep = work.git.attempt("grep", "-I", "-z", "-l", "-e", "^<<<<<<< ", tree, "--", *files)
    start = f"{tree}:"
    marked = {name.removeprefix(start) for name in grep.stdout.decode().split("\0")}
    bare = [name for name in files if name not in marked]
    if not bare:
        return tree, []
    lines = []
    for name in bare:
        own, others = _entry(work, mine, name), _entry(work, upstream, name)
        lines.append(f"{own}\t{name}" if own else f"0 {'0' * len(tree)}\t{name}")
        if others:
            lines.append(f"{others}\t{name}{THEIRS}")
    index_info = "".join(f"{line}\0" for line in lines).encode()
    with work.git.own_index() as environ:
        work.git.run("read-tree", tree, environ=environ)
        work.git.run("update-index", "-z", "--index-info", stdin=index_info, environ=environ)
        return work.git.run("write-tree", environ=environ).decode().strip(), bare


def _entry(work: WorkingFolder, commit: str, name: str) -> str:
    """Return mode and blob of a file in a commit; empty where it is not."""
    entry = work.git.run("ls-tree", "-z", "--full-tree", commit, "--", name).decode()
    mode, _, blob = entry.partition("\t")[0].split() if entry else ("", "", "")
    return f"{mode} {blob}".strip()
