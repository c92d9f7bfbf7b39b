"""Commands of README, CONTRIBUTING and docs: fenced blocks by language, and what stands in lines."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`(walle [a-z][^`]*)`")
_COMMAND = re.compile(
    r"\s*(\$ |([A-Z_]+=\S+ )*(\S*/)?(walle|make|pip|python|curl)(?= )(?! *─))", re.MULTILINE
)


class Block(NamedTuple):
    """A fenced block."""

    place: str
    language: str
    text: str

    @property
    def page(self) -> str:
        return self.place.rpartition(":")[0]


def _name(page: Path, text: str, offset: int) -> str:
    return f"{page.relative_to(ROOT).as_posix()}:{text.count(chr(10), 0, offset) + 1}"


def blocks(*languages: str) -> list[Block]:
    """All blocks of some languages, in the order of their pages."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        found.extend(
            Block(_name(page, text, match.start()), match[1], match[2])
            for match in _FENCE.finditer(text)
            if match[1] in languages
        )
    return found


def has_commands(block: Block) -> bool:
    return any(_COMMAND.match(line) for line in block.text.splitlines())


def typed(block: Block) -> str:
    """What somebody types: of a block with output, what stands behind the prompt."""
    if block.language != "console":
        return block.text
    return "".join(f"{line[2:]}\n" for line in block.text.splitlines() if line.startswith("$ "))


def inline() -> list[tuple[str, str]]:
    """Commands in lines and tables, with their places."""
    found = []
    for page in PAGES:
        text = _FENCE.sub(lambda match: "\n" * match[0].count("\n"), page.read_text("utf-8"))
        found += [
            (_name(page, text, match.start()), match[1].replace(r"\|", "|"))
            for match in _INLINE.finditer(text)
        ]
    return found


def usages(line: str) -> list[list[str]]:
    """Commands that a line of grammar stands for: `[may be left out]`, `one|another`, `...`.

    Each choice is taken once, beside the first of the others, and all of them are left out once.
    """
    line = line.partition(" # ")[0].replace(" ...", "")
    line = re.sub(r"(?<=\w)\[[^ ]*\]", "", line)  # SCENARIO/TASK[@VERSION]
    groups = re.findall(r"\[([^\]]*)\]|([^\s\[\]]+)", line)
    choices = [[each.strip() for each in f"{a}{b}".split("|")] for a, b in groups]
    least = ["" if optional else word.split("|")[0] for optional, word in groups]
    first = [each[0] for each in choices]
    found = [least, first]
    for place, words in enumerate(choices):
        found += [[*first[:place], word, *first[place + 1 :]] for word in words[1:]]
    return [" ".join(each).split() for each in found]
