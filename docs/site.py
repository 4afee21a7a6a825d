"""The site: all notebooks with their stored outputs, these pages, the reference, every run; nothing is executed.

`make site`, or `python docs/site.py [folder]` (default: _site). MathJax comes from npm once and is kept in the folder;
a browser needs no network.
"""

import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "studies")]
import front  # noqa: E402
import reference  # noqa: E402
from sphinx.cmd.build import main as sphinx  # noqa: E402

from paperlib import papers  # noqa: E402
from paperlib.papers import TITLES  # noqa: E402
from paperlib.papers.claims import VERDICTS  # noqa: E402
from paperlib.reports import results_page, scorecard, scorecard_page  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
MATHJAX = "mathjax@3.2.2"
PARTS = ("package/es5/tex-chtml-full.js", "package/es5/output/chtml/fonts/")
PLAYGROUND = "figures/explorers.png"
# Pages that no notebook is: they are put beside the others as they are.
LINK = re.compile(r"\[([^\]]*)\]\(\.\./figures/index\.html\)")

FIRST = """# A companion to five federated-learning papers

In federated learning, clients train one model together and keep their images to themselves. Where clients hold
different classes they pull the model in different directions, and FedAvg, the plain average, suffers. Five papers
repair this. Here each of their methods is a page of code beside its equations, each table is a notebook, and each
number comes from a run that repeats bit by bit.
"""
PICTURES = """Each picture shows one column of the paper's main table: the points of accuracy that a method gains over
FedAvg. Dots are our runs with 95 % intervals of the paired differences, orange for the paper's own method; diamonds are
the printed numbers.
"""
CLAIMS = "Of the paper's {} claims these runs bear out {} and speak against {}; undecided: {}; not run: {}.\n"
COURSE = f"""## The course

![Paths of three clients and the server under SCAFFOLD, in the plane of two parameters]({PLAYGROUND})

Six notebooks of half an hour lead from FedAvg in thirty lines to the ideas of the five papers. Each asks one question,
answers it with runs of a few seconds, and checks your exercises. [For lecturers](docs/lecturers.md) there are minutes,
marks and copies without solutions.
"""
LAST = """
## Look further

- [What holds near print](docs/findings.md): the claims that our runs decide, and ten facts about papers and codes.
- <a href="results.html">Every finished run</a>: its curve, its distance to print, its differences to other methods.
- <a href="scorecard.html">The scorecard</a>: what is run of every table, and whether the methods keep their order.
- [The league](docs/league.md): methods tuned by one rule, and [your method](notebooks/your_method.ipynb) among them.
- [Use it](README.md), and [add your method](CONTRIBUTING.md).
"""


def build(folder: Path) -> Path:
    """Write the site below the folder; returns its first page. Raises ValueError where a page has a mistake."""
    source, html = folder / "source", folder / "html"
    shutil.rmtree(source, ignore_errors=True)
    card = scorecard.scorecard(shipped_only=True)
    gather(source, card)
    shutil.copytree(ROOT / "docs/_static", source / "_static")
    mathjax(folder, source / "_static" / "mathjax")
    jobs = ["-j", "auto"] if sys.platform != "win32" else []
    given = ["-q", "-W", "--keep-going", "-c", str(Path(__file__).parent), "-D", f"html_static_path={source}/_static"]
    if sphinx([*given, *jobs, "-d", str(folder / "doctrees"), str(source), str(html)]):
        raise ValueError("a page of the site has a mistake, see above")
    results_page.write_page(html, folder / "no_runs")
    scorecard_page.write_page(card, html)
    return html / "index.html"


def gather(source: Path, card: scorecard.Scorecard) -> None:
    """All pages in one folder: notebooks, docs, the README, the reference, and the first page with the contents."""
    shutil.copytree(ROOT / "notebooks", source / "notebooks", ignore=shutil.ignore_patterns(".*"))
    for pattern in (
        "README.md",
        "CONTRIBUTING.md",
        "docs/**/*.md",
        "docs/front.png",
        PLAYGROUND,
        "figures/best/*/*.png",
    ):
        for path in ROOT.glob(pattern):
            target = source / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    start = source / "notebooks/start.ipynb"
    start.write_text(LINK.sub(r'<a href=\\"../results.html\\">\1</a>', start.read_text(encoding="utf-8")))
    (source / "reference").mkdir()
    for name, write in reference.PAGES.items():
        (source / "reference" / f"{name}.md").write_text(write(), encoding="utf-8")
    (source / "index.md").write_text(contents(source, card), encoding="utf-8")


def contents(source: Path, card: scorecard.Scorecard) -> str:
    """The first page: a picture and a sentence per paper, the course, and the contents beside it."""
    course = sorted((source / "notebooks/course").glob("*.ipynb"))
    parts = [FIRST, "## The papers\n", PICTURES, '<div class="papers">\n']
    parts += [paper_card(source, paper, card) for paper in front.CHOSEN]
    parts += ["</div>\n", COURSE, *(f"1. [{heading(page)}](notebooks/course/{page.name})" for page in course)]
    parts += [LAST, _tree("First steps", ["README", "notebooks/start", "notebooks/your_method", "docs/findings"])]
    parts.append(_tree("Course", [*(f"notebooks/course/{page.stem}" for page in course), "docs/lecturers"]))
    for paper, title in TITLES.items():
        specs = {**papers.TABLES[paper], **papers.FIGURES[paper]}
        order = list(dict.fromkeys(spec.notebook for spec in sorted(specs.values(), key=lambda spec: spec.section)))
        there = [page.stem for page in sorted((source / "notebooks" / paper).glob("*.ipynb"))]
        parts.append(
            _tree(title, [*(n for n in order if n in there), *(n for n in there if n not in order)], f"{paper}/")
        )
    docs = sorted(page.stem for page in (source / "docs").glob("*.md") if page.stem not in ("findings", "lecturers"))
    more = ["notebooks/newer_methods/README", "CONTRIBUTING"]
    parts.append(_tree("How it is done", [*(f"docs/{name}" for name in docs), *more]))
    failures = sorted(page.stem for page in (source / "docs/failures").glob("*.md") if page.stem != "README")
    parts.append(_tree("When a method diverges", [f"docs/failures/{name}" for name in ["README", *failures]]))
    parts.append(_tree("Reference", [f"reference/{name}" for name in reference.PAGES]))
    return "\n".join(parts)


def paper_card(source: Path, paper: str, card: scorecard.Scorecard) -> str:
    """One paper: its idea, its picture, how it stands to FedAvg, and how many of its claims are decided."""
    chosen, found, picture = front.CHOSEN[paper], front.gains(paper), f"front/{paper}.svg"
    (source / "front").mkdir(exist_ok=True)
    front.save_panel(paper, found, source / picture)
    page = f"notebooks/{paper}/{papers.TABLES[paper][chosen.table].notebook}.ipynb"
    name, table = TITLES[paper], card.tables
    rows = table[(table.paper == paper) & (table.scale == chosen.scale) & (table.table == scorecard.ALL)]
    counts = [rows.iloc[0][verdict] for verdict in VERDICTS]
    return (
        f"<div>\n\n**[{name}]({page})**. {chosen.idea}\n\n"
        f"[![{name}: points over FedAvg, ours beside print]({picture})]({page})\n\n"
        f"{front.sentence(paper, found)} {CLAIMS.format(sum(counts), *counts)}\n</div>\n"
    )


def heading(notebook: Path) -> str:
    """The heading of a notebook of the course, without its number."""
    cell = json.loads(notebook.read_text(encoding="utf-8"))["cells"][0]
    text = "".join(cell["source"]).splitlines()[0].partition(": ")[2]
    return text[0].upper() + text[1:]


def _tree(caption: str, pages: list[str], folder: str = "") -> str:
    lines = "\n".join(f"notebooks/{folder}{page}" if folder else page for page in pages)
    return f"```{{toctree}}\n:caption: {caption}\n:hidden:\n:maxdepth: 1\n\n{lines}\n```\n"


def mathjax(folder: Path, place: Path) -> None:
    """MathJax with its fonts into a place; it is fetched from npm once, into the folder."""
    name, _, version = MATHJAX.partition("@")
    archive = folder / f"{name}-{version}.tgz"
    if not archive.exists():
        if shutil.which("npm") is None:
            raise ValueError(f"formulas need MathJax: install npm, or put {archive.name} into {folder}")
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "pack", "--silent", MATHJAX, "--pack-destination", str(folder)], check=True)
    with tarfile.open(archive) as packed:
        for member in packed.getmembers():
            if member.isfile() and member.name.startswith(PARTS):
                target = place / member.name.removeprefix("package/es5/")
                target.parent.mkdir(parents=True, exist_ok=True)
                content = packed.extractfile(member)
                assert content is not None
                target.write_bytes(content.read())


if __name__ == "__main__":
    print(build(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "_site"))
