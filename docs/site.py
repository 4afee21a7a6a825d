"""The site: all notebooks with their stored outputs, these pages, the reference, every run; nothing is executed.

`make site`, or `python docs/site.py [folder]` (default: _site). MathJax comes from npm once and is kept in the folder;
a browser needs no network.
"""

import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import reference  # noqa: E402
from sphinx.cmd.build import main as sphinx  # noqa: E402

from paperlib import papers  # noqa: E402
from paperlib.papers import TITLES  # noqa: E402
from paperlib.reports import results_page, scorecard, scorecard_page  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
MATHJAX = "mathjax@3.2.2"
PARTS = ("package/es5/tex-chtml-full.js", "package/es5/output/chtml/fonts/")
# Pages that no notebook is: they are put beside the others as they are.
LINK = re.compile(r"\[([^\]]*)\]\(\.\./figures/index\.html\)")


def build(folder: Path) -> Path:
    """Write the site below the folder; returns its first page. Raises ValueError where a page has a mistake."""
    source, html = folder / "source", folder / "html"
    shutil.rmtree(source, ignore_errors=True)
    gather(source)
    shutil.copytree(ROOT / "docs/_static", source / "_static")
    mathjax(folder, source / "_static" / "mathjax")
    jobs = ["-j", "auto"] if sys.platform != "win32" else []
    given = ["-q", "-W", "--keep-going", "-c", str(Path(__file__).parent), "-D", f"html_static_path={source}/_static"]
    if sphinx([*given, *jobs, "-d", str(folder / "doctrees"), str(source), str(html)]):
        raise ValueError("a page of the site has a mistake, see above")
    results_page.write_page(html, folder / "no_runs")
    scorecard_page.write_page(scorecard.scorecard(shipped_only=True), html)
    return html / "index.html"


def gather(source: Path) -> None:
    """All pages in one folder: notebooks, docs, the README, the reference, and the first page with the contents."""
    shutil.copytree(ROOT / "notebooks", source / "notebooks", ignore=shutil.ignore_patterns(".*"))
    for pattern in (
        "README.md",
        "docs/**/*.md",
        "figures/explorers.png",
        "figures/small/*/*.png",
        "figures/paper/*/*.png",
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
    (source / "index.md").write_text(contents(source), encoding="utf-8")


def contents(source: Path) -> str:
    """The first page."""
    parts = [
        "# A companion to five federated-learning papers\n",
        f"{', '.join(TITLES.values())}: their methods, tables and figures, our value beside the printed one. Every "
        "page is a notebook with its stored outputs, or made from the code.\n",
        '<a href="results.html">Every finished run</a>: curves, ours against print, paired differences, verdicts of '
        'the papers\' claims. <a href="scorecard.html">Scorecard</a>: how far each table is reproduced.\n',
        _tree("First steps", ["README", "notebooks/start", "docs/findings"]),
        _tree("Course", [page.stem for page in sorted((source / "notebooks/course").glob("*.ipynb"))], "course/"),
    ]
    for paper, title in TITLES.items():
        specs = {**papers.TABLES[paper], **papers.FIGURES[paper]}
        order = list(dict.fromkeys(spec.notebook for spec in sorted(specs.values(), key=lambda spec: spec.section)))
        there = [page.stem for page in sorted((source / "notebooks" / paper).glob("*.ipynb"))]
        parts.append(
            _tree(title, [*(n for n in order if n in there), *(n for n in there if n not in order)], f"{paper}/")
        )
    docs = sorted(page.stem for page in (source / "docs").glob("*.md") if page.stem != "findings")
    parts.append(_tree("How it is done", [*(f"docs/{name}" for name in docs), "notebooks/newer_methods/README"]))
    failures = sorted(page.stem for page in (source / "docs/failures").glob("*.md") if page.stem != "README")
    parts.append(_tree("When a method diverges", [f"docs/failures/{name}" for name in ["README", *failures]]))
    parts.append(_tree("Reference", [f"reference/{name}" for name in reference.PAGES]))
    return "\n".join(parts)


def _tree(caption: str, pages: list[str], folder: str = "") -> str:
    lines = "\n".join(f"notebooks/{folder}{page}" if folder else page for page in pages)
    return f"```{{toctree}}\n:caption: {caption}\n:maxdepth: 1\n\n{lines}\n```\n"


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
