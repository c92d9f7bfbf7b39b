"""Rebuilds a folder as a power cut behind any change of a log would leave it.

A file's bytes are durable once the file was synced. When its name is, depends on `names`:

- `strict`: once its folder was synced, as POSIX has it.
- `ext4`: with any sync, as one journal has all names; the journal may also write itself down at any
  time, so that some of the names since then are durable.

`data` selects the rest of bytes that were not synced. `none` leaves none of them. `prefix` leaves
a prefix of each file's changes, the last one in part. `real` leaves them like a file system: the
end is cut at a page, and each page inside is in its old or its new state. All that is left to
chance is drawn from one seeded generator.
"""

import os
from itertools import starmap
from pathlib import Path

PAGE = 4096
NAMES = ("strict", "ext4")
DATA = ("none", "prefix", "real")


class _File:
    def __init__(self):
        self.kept = bytearray()  # durable
        self.pending = []  # (offset, bytes), or (size, None) of a truncation

    def sync(self):
        for change in self.pending:
            _change(self.kept, *change)
        self.pending.clear()

    def after_a_cut(self, data, chance):
        found = bytearray(self.kept)
        if data == "none" or not self.pending:
            return found
        count = chance.choice((len(self.pending), chance.randrange(len(self.pending) + 1)))
        for change in self.pending[:count]:
            _change(found, *change)
        if data == "prefix":
            if count < len(self.pending) and self.pending[count][1]:
                offset, content = self.pending[count]
                _change(found, offset, content[: chance.randrange(len(content))])
            return found
        return self._pages(found, chance)

    def _pages(self, found, chance):
        # of what was there before, each page is the old or the new one
        for at in range(0, min(len(self.kept), len(found)), PAGE):
            end = min(at + PAGE, len(self.kept), len(found))
            if chance.random() < 0.5:
                found[at:end] = self.kept[at:end]
        first = -(-len(self.kept) // PAGE)
        last = -(-len(found) // PAGE)
        if last > first:
            end = chance.choice((len(found), chance.randrange(first, last) * PAGE))
            del found[max(end, min(len(self.kept), len(found))) :]
        return found


class Disk:
    """Contents of a disk, and changes that are still only in memory."""

    def __init__(self, names):
        self.names = names
        self.files, self.links = {}, {}
        self.unknown = set()
        """Inodes whose bytes are written past the log: mapped, or by stdio."""
        self._root = 0
        self._now = {}  # folders by inode: what is in them by name
        self._kept = {}
        self._pending = []  # changes of names: (folder, name, inode or None) each, together

    def apply(self, op):
        """Take the next change of a log."""
        inode = op.inode
        if op.kind == "R":
            self._root = inode
            self._now.setdefault(inode, {})
            self._kept.setdefault(inode, {})
        elif op.kind in "CDYNLU":
            self._name(op)
        elif op.kind in "WT":
            self.files[inode].pending.append((op.offset, op.data if op.kind == "W" else None))
        elif op.kind == "S":
            self._sync(inode)
        else:
            self.unknown.add(inode)

    def build(self, folder, data, chance):
        """Write down what a cut leaves: here and now, into a folder that is made."""
        kept = {inode: dict(entries) for inode, entries in self._kept.items()}
        if self.names == "ext4" and self._pending:
            for changes in self._pending[: chance.randrange(len(self._pending) + 1)]:
                _rename(kept, changes)
        contents = {
            inode: file.after_a_cut(data, chance) for inode, file in sorted(self.files.items())
        }
        self._write(folder, kept, contents)

    def build_all(self, folder):
        """Write down everything, as if there were no cut."""
        contents = {}
        for inode, file in self.files.items():
            contents[inode] = bytearray(file.kept)
            list(starmap(lambda *change, to=contents[inode]: _change(to, *change), file.pending))
        self._write(folder, self._now, contents)
        return {path for path, inode in self._paths(folder, self._now) if inode in self.unknown}

    def _write(self, folder, names, contents):
        folder.mkdir()
        made = {}
        for path, inode in self._paths(folder, names):
            if inode in self.links:
                path.symlink_to(self.links[inode])
            elif inode in self._now:
                path.mkdir(mode=0o700)
            elif inode in made:
                os.link(made[inode], path)
            else:
                made[inode] = path
                # rights are not in the log; keys are refused where others may read them
                with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                    file.write(contents[inode])

    def _paths(self, folder, names, inode=None):
        for name, each in names[inode or self._root].items():
            yield Path(folder, name), each
            if each in names:
                yield from self._paths(Path(folder, name), names, each)

    def _place(self, path):
        *folders, name = path.split("/")
        inode = self._root
        for each in folders:
            inode = self._now[inode][each]
        return inode, name

    def _name(self, op):
        if op.kind == "C":
            self.files[op.inode] = _File()
        elif op.kind == "D":
            self._now[op.inode], self._kept[op.inode] = {}, {}
        elif op.kind == "Y":
            self.links[op.inode] = op.text
        # what has no path here is outside of the root
        went = [(*self._place(op.path), None)] if op.kind in "NU" and op.path else []
        path = op.text if op.kind in "NL" else op.path if op.kind in "CDY" else ""
        changes = went + ([(*self._place(path), op.inode)] if path else [])
        _rename(self._now, changes)
        self._pending.append(changes)

    def _sync(self, inode):
        if inode in self.files:
            self.files[inode].sync()
        left = []
        for changes in self._pending:
            # a rename is whole: either folder's sync keeps it
            if self.names == "ext4" or any(folder == inode for folder, *_ in changes):
                _rename(self._kept, changes)
            else:
                left.append(changes)
        self._pending = left


def _rename(folders, changes):
    for folder, name, inode in changes:
        if inode is None:
            folders[folder].pop(name, None)
        else:
            folders[folder][name] = inode


def _change(content, offset, data):
    if data is None:
        del content[offset:]
        content.extend(bytes(offset - len(content)))
    else:
        content.extend(bytes(max(0, offset - len(content))))
        content[offset : offset + len(data)] = data
