"""Sentences of pages and code: their lengths, and turns of phrase that make readers stumble.

By hand: python tests/words.py FILE ... prints the long ones, too.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

WORDS_MAX = 32

_VERB = "is|are|has|have|gets?|takes?|comes?|goes|stays?|needs?|lies|does|ends?|begins?|finds?|sees?|waits?"
TURNS = {
    "clause as subject": re.compile(
        rf"(?:^|[.:;,] )(?:Who(?:ever)?|What|How many|How much|Which)\b(?![^.?!]*\?)[^.,;:]*\b(?:{_VERB})\b"
    ),
    "of before": re.compile(r"\bof (?:before|then)\b"),
    "is said": re.compile(r"\b(?:is|are|was|were) said\b"),
    "so many": re.compile(r"\bso (?:many|much)\b(?! that\b)"),
    "how-manieth": re.compile(r"how-manieth"),
    "that there are not": re.compile(
        r"\bthat (?:there )?(?:is|are) not there\b|\bthat there are not\b"
    ),
}

_FENCE = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"`[^`]+`")
_BREAK = re.compile(r"^(?:#+ |\s*[-*] |\s*\d+\. |\s*$|> |---)", re.MULTILINE)
_END = re.compile(r"(?<=[.!?])[\"')*_]* +(?=[\"'(*_]*[A-Z0-9`<])")


class Sentence(NamedTuple):
    """One, and where it begins."""

    file: str
    line: int
    text: str

    @property
    def words(self) -> int:
        """How many it has; a piece of code is one."""
        return sum(any(c.isalnum() for c in word) for word in self.text.split())


def sentences(path: Path) -> Iterator[Sentence]:
    """Yield those of paragraphs and list items; headings, tables and code have none."""
    text = path.read_text(encoding="utf-8")
    for pattern in (_FENCE, _COMMENT):
        text = pattern.sub(lambda match: "\n" * match[0].count("\n"), text)
    text = _LINK.sub(r"\1", _CODE.sub("Code", text))
    block: list[str] = []
    first = 1
    for number, line in enumerate([*text.split("\n"), ""], 1):
        is_prose = bool(line.strip()) and line.lstrip()[0] not in "#|"
        if not is_prose or _BREAK.match(line):
            whole = " ".join(" ".join(block).split())
            block.clear()
            yield from (Sentence(str(path), first, each) for each in _END.split(whole) if each)
        if is_prose:
            first = first if block else number
            block.append(re.sub(r"^\s*(?:[-*]|\d+\.|>) ", "", line))


def code_sentences(path: Path) -> Iterator[Sentence]:
    """Yield those of docstrings, comments and messages of a Python file."""
    source = path.read_text(encoding="utf-8")
    for line, text in (*_texts(ast.parse(source)), *_comments(source)):
        for paragraph in re.split(r"\n\s*\n|\n\s*[-*] |\n\s*\w+: ", text):
            whole = " ".join(re.sub(r"`+[^`]+`+", "Code", paragraph).split())
            yield from (Sentence(str(path), line, each) for each in _END.split(whole) if each)


def _texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    joined = set()
    for node in ast.walk(tree):  # a joined text comes before its parts
        if isinstance(node, ast.JoinedStr):
            joined.update(map(id, node.values))
            values = (each.value if isinstance(each, ast.Constant) else "X" for each in node.values)
            yield node.lineno, "".join(map(str, values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value * (id(node) not in joined)


def _comments(source: str) -> Iterator[tuple[int, str]]:
    block: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1:
                yield first, " ".join(block)
                block, first = [], token.start[0]
            last = token.start[0]
            block.append(token.string.lstrip("#: "))
    yield first, " ".join(block)


def turns(sentence: Sentence) -> list[str]:
    """Name the turns that a sentence has."""
    return [name for name, pattern in TURNS.items() if pattern.search(sentence.text)]


def main(pages: list[str]) -> int:
    """Print long sentences and turns, and a line of figures."""
    found = [
        each
        for page in map(Path, pages)
        for each in (code_sentences if page.suffix == ".py" else sentences)(page)
    ]
    for each in found:
        said = turns(each) + [f"{each.words} words"] * (each.words > WORDS_MAX)
        if said:
            print(f"{each.file}:{each.line}: {', '.join(said)}: {each.text}")
    lengths = sorted(each.words for each in found)
    mean, long = sum(lengths) / len(lengths), lengths[int(len(lengths) * 0.95)]
    print(f"{len(lengths)} sentences, mean {mean:.1f} words, 95 % at most {long}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
