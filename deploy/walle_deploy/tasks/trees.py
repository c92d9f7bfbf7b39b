"""The files of a commit: listed, checked and read, but never checked out by git.

An author can push anything in a tree. A file is refused before any byte of it is read if it is not
a plain file with a plain name, or is too large. The filters, end-of-line conversions and export
rules of ``.gitattributes`` are ignored: the bytes are those that git stores.
"""

import hashlib
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Timer
from typing import Final

import msgspec

from walle_deploy.tasks.git import LOCAL_TIMEOUT_S, Git, no_git
from walle_stream.errors import GitError

FILE_MAX_BYTES: Final = 256 * 1024 * 1024
"""Size of the largest file of a task, equal to the limit of a package."""

TREE_MAX_BYTES: Final = 4 * 1024 * 1024 * 1024
TREE_MAX_FILES: Final = 100_000
_KINDS: Final = {"120000": "a symbolic link", "160000": "a submodule"}
_PATH_MAX: Final = 1_000
_PART_MAX: Final = 255
_PIECE_BYTES: Final = 1024 * 1024
_LFS: Final = b"version https://git-lfs.github.com/spec/"
_LFS_MAX_BYTES: Final = 1_024
_HEX_OF_SHA1: Final = 40


class TreeFile(msgspec.Struct, frozen=True):
    """A file of a commit."""

    path: str
    """Relative path with ``/`` between the parts."""
    blob: str
    """Git's id of the content."""
    size_bytes: int


def list_tree(git: Git, tree: str, origin: str) -> list[TreeFile]:
    """List the files of a commit or tree by path, and refuse files that no task may have.

    ``origin`` names the tree in messages, such as ``shop/ipv@v2``.

    Raises:
        GitError: An entry is not a plain file with a plain name, or is too large.
    """
    listed = git.run("ls-tree", "-r", "-z", "-l", "--full-tree", tree)
    files = []
    for entry in listed.split(b"\0")[:-1]:
        facts, _, raw = entry.partition(b"\t")
        mode, _, blob, size = facts.decode().split()
        path = raw.decode(errors="surrogateescape")
        problem = _kind_problem(mode) or _path_problem(path)
        if problem is None and int(size) > FILE_MAX_BYTES:
            problem = f"has {size} bytes, at most {FILE_MAX_BYTES}: split it"
        if problem is not None:
            raise GitError(f"{origin}: {_shown(path)} {problem}")
        files.append(TreeFile(path, blob, int(size)))
    total = sum(file.size_bytes for file in files)
    if total > TREE_MAX_BYTES or len(files) > TREE_MAX_FILES:
        raise GitError(
            f"{origin}: {len(files)} files of {total} bytes, at most {TREE_MAX_FILES} and "
            f"{TREE_MAX_BYTES}: leave out what the task does not need"
        )
    return files


def export_files(git: Git, files: Sequence[TreeFile], folder: Path, origin: str) -> None:
    """Write files of a commit into an empty folder, in pieces.

    Raises:
        GitError: git ended too early, or a file is a git-lfs pointer.
        OSError: The disk is full.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 - git, and no shell
            git.command("cat-file", "--batch"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=git.variables(is_network=False),
        )
    except OSError as error:
        missing: GitError = no_git(error)
        raise missing from error
    watch = Timer(LOCAL_TIMEOUT_S, process.kill)
    watch.start()
    with process:
        try:
            for file in files:
                path = folder / file.path
                path.parent.mkdir(parents=True, exist_ok=True)
                _copy_blob(process, file, path, origin)
        finally:
            watch.cancel()
            process.kill()


def blob_id(path: Path, size_bytes: int, like: str) -> str:
    """Return git's id of a file's content."""
    is_sha1 = len(like) == _HEX_OF_SHA1
    digest = hashlib.sha1(usedforsecurity=False) if is_sha1 else hashlib.sha256()
    digest.update(b"blob %d\0" % size_bytes)
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: digest).hexdigest()


def is_whole(files: Iterable[TreeFile], folder: Path) -> bool:
    """Return whether a folder has exactly these files with their contents, and no others."""
    named = {file.path: file for file in files}
    try:
        paths = {
            path.relative_to(folder).as_posix(): path
            for path in folder.rglob("*")
            if path.is_symlink() or not path.is_dir()
        }
        return paths.keys() == named.keys() and all(
            not path.is_symlink()
            and path.stat().st_size == named[name].size_bytes
            and blob_id(path, named[name].size_bytes, named[name].blob) == named[name].blob
            for name, path in paths.items()
        )
    except OSError:
        return False


def _copy_blob(process: subprocess.Popen[bytes], file: TreeFile, path: Path, origin: str) -> None:
    stdin, stdout = process.stdin, process.stdout
    if stdin is None or stdout is None:
        raise GitError(f"{origin}: git cat-file has no pipes")
    try:
        stdin.write(f"{file.blob}\n".encode())
        stdin.flush()
    except BrokenPipeError:
        pass  # the missing answer is reported below
    header = stdout.readline().split()
    if header[1:] != [b"blob", str(file.size_bytes).encode()]:
        raise GitError(f"{origin}: git cannot read {_shown(file.path)}: check the repository")
    with path.open("xb") as target:
        left = file.size_bytes
        while left:
            piece = stdout.read(min(left, _PIECE_BYTES))
            if not piece:
                raise GitError(f"{origin}: git returned only a part of {_shown(file.path)}")
            if left == file.size_bytes <= _LFS_MAX_BYTES and piece.startswith(_LFS):
                raise GitError(
                    f"{origin}: {_shown(file.path)} is a git-lfs pointer, not the file: commit "
                    f"the file itself, up to {FILE_MAX_BYTES} bytes (git lfs migrate export)"
                )
            target.write(piece)
            left -= len(piece)
    stdout.read(1)


def _kind_problem(mode: str) -> str | None:
    if mode in {"100644", "100755"}:
        return None
    return f"is {_KINDS.get(mode, f'of mode {mode}')}: only plain files travel, add the file itself"


def _path_problem(path: str) -> str | None:
    parts = path.split("/")
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "has a name that is not UTF-8: rename it"
    if not path.isprintable() or "\\" in path:
        return "has a name with characters that no file of a task may have: rename it"
    if any(part in {"", ".", ".."} or part.lower() == ".git" for part in parts):
        return "leads out of the task's folder: rename it"
    if any(part.startswith("-") for part in parts):
        return "has a name that a command would take for an option: rename it"
    if size > _PATH_MAX or any(len(part.encode()) > _PART_MAX for part in parts):
        return f"has a name of more than {_PATH_MAX} bytes, or {_PART_MAX} in a part: shorten it"
    return None


def _shown(path: str) -> str:
    text = path.encode(errors="surrogateescape").decode(errors="replace")
    return repr(text if len(text) <= _PART_MAX else f"{text[:_PART_MAX]}...")
