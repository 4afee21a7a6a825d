"""Extract the numbers of every table from the text of a paper, independently of data/paper.

    python -m tests.printed.extract gc_fed paper.txt

puts them into numbers.json. A table reaches from its caption to the next one; where the text repeats a number as
markup, "84.2184.21", it counts once. "340340" may be one number or 340 twice, and counts as both.
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path

FILE = Path(__file__).with_name("numbers.json")
CAPTION = re.compile(r"(Table|Figure|Fig\.) ?(\d+)[.:]")
NUMBER = re.compile(r"-?\d[\d.,]*")
BELOW = {("fedimpro", "T11")}  # tables whose caption stands below them


def tables(paper: str, text: str) -> dict[str, dict[str, int]]:
    """Return table -> number, as printed -> how often it stands there."""
    lines = text.replace("−", "-").split("\n")
    captions = [(at, *found.groups()) for at, line in enumerate(lines) if (found := CAPTION.match(line))]
    ends = [*(at for at, *_ in captions), len(lines)]
    found = {}
    for place, (at, kind, number) in enumerate(captions):
        name = f"T{number}"
        if kind == "Table" and name not in found:
            first = ends[place - 1] if (paper, name) in BELOW else at
            found[name] = dict(sorted(numbers("\n".join(lines[first : ends[place + 1]])).items()))
    return found


def numbers(text: str) -> Counter[str]:
    """Count the numbers of a text."""
    counts: Counter[str] = Counter()
    for token in NUMBER.findall(re.sub(r"\\mathbf|[{}]", " ", text)):
        token = token.rstrip(".,").replace(",", "")
        twice = re.fullmatch(r"(-?\d+(?:\.\d+)?)\1", token)
        for number in {token, twice[1]} if twice and "." not in token else {twice[1] if twice else token}:
            counts[number] += 1
    return counts


if __name__ == "__main__":
    paper, text = sys.argv[1:]
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    known[paper] = tables(paper, Path(text).read_text())
    FILE.write_text(json.dumps(dict(sorted(known.items())), indent=0) + "\n")
