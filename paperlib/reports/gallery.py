"""The gallery: one page with every table and figure on disk, and the notebooks that made them."""

from pathlib import Path
from urllib.parse import quote

from paperlib.files import write
from paperlib.markup import Markup, escape, listed
from paperlib.papers import FIGURES, TABLES, TITLES
from paperlib.papers.catalogue import PAPERS
from paperlib.papers.scales import RULES, SMOKE_ONE_SHOT, scale_name
from paperlib.papers.specs import Spec
from paperlib.paths import figures as figures_folder

STYLE = """
body { font-family: Georgia, serif; line-height: 1.4; max-width: 72em; margin: 0 auto; padding: 0 1em 4em; color: #222 }
nav { position: sticky; top: 0; z-index: 1; background: #fff; border-bottom: 1px solid #ccc; padding: .6em 0 }
nav a { margin-right: 1.2em } nav, .names, section .files { font-family: Helvetica, Arial, sans-serif; font-size: 85% }
h2, h3, section { scroll-margin-top: 3.2em } h2 { margin-top: 2em; border-bottom: 2px solid #222 }
table { font-family: Helvetica, Arial, sans-serif; font-size: 80%; border-collapse: collapse }
td, th { padding: 2px 8px; vertical-align: top } tr:nth-child(even) td { background: #f6f6f6 }
section { margin: 2.5em 0 } section p { font-size: 90%; margin: .6em 0 }
.wide { overflow-x: auto } img { max-width: 100% } .note { color: #555; max-width: 60em }
details { margin: .5em 0 } .names a { display: inline-block; margin: 0 .7em .2em 0 } .files a { margin-right: .4em }
"""


def build(folder: Path | None = None) -> Path:
    """Write ``index.html`` from what lies in the folder (default: figures/); returns its path.

    Within a paper, scales come from the smallest to the largest; nothing is computed.
    """
    folder = folder or figures_folder()
    # First the papers of which something is there.
    order = sorted(TITLES, key=lambda paper: not any(folder.glob(f"*/{paper}/*")))
    links = "".join(f'<a href="#{paper}">{TITLES[paper]}</a>' for paper in order)
    if (folder / "scorecard.html").exists():
        links += '<a href="scorecard.html">Scorecard</a>'
    if (folder / "results.html").exists():
        links += '<a href="results.html">Every run</a>'
    papers = "\n".join(_paper(folder, paper) for paper in order)
    body = (
        f"<nav>{links}</nav>\n<h1>Tables and figures, reproduced</h1>\n<p>Our value beside the printed one; the best "
        f"value of each column in bold, the second underlined. Scales:</p>\n{_rules()}\n{papers}"
    )
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "index.html", page("Paper companion", body).encode())
    return folder / "index.html"


def page(title: str, body: str) -> str:
    """A whole page that needs no other file for its looks."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f"<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _rules() -> Markup:
    said = [Markup("<b>{}</b>: {}").format(scale, rule) for scale, rule in RULES.items()]
    said.append(Markup("<b>smoke</b>, one-shot methods: {}").format(SMOKE_ONE_SHOT))
    return Markup('<details class="note"><summary>{}</summary>\n{}</details>').format(", ".join(RULES), listed(said))


def _budgets(folder: Path) -> list[str]:
    """The budgets of which something lies in the folder, ascending."""
    names = [place.name for place in folder.iterdir() if place.is_dir()] if folder.exists() else []
    return sorted((name for name in names if name not in RULES and _is_budget(name)), key=float)


def _is_budget(name: str) -> bool:
    try:
        return scale_name(name) == name
    except ValueError:
        return False


def _paper(folder: Path, paper: str) -> str:
    specs: dict[str, Spec] = {**TABLES[paper], **FIGURES[paper]}
    places = {scale: folder / scale / paper for scale in [*RULES, *_budgets(folder)]}
    made = {
        scale: sorted((name for name in specs if _has(place, name)), key=_number) for scale, place in places.items()
    }
    parts = [f'<h2 id="{paper}">{TITLES[paper]}</h2>']
    missing = [name for name in PAPERS[paper].names if not any(name in there for there in made.values())]
    if missing:
        said = f"Not made: {', '.join(missing)}." if any(made.values()) else "Nothing has been made yet."
        parts.append(f'<p class="note">{said}</p>')
    for scale, there in made.items():
        if not there:
            continue
        place = f"{scale}/{paper}"
        parts.append(f'<h3 id="{scale}-{paper}">{TITLES[paper]}, scale {scale}</h3>')
        jumps = "".join(f'<a href="#{place}-{name}">{name}</a>' for name in there)
        pages = sorted((folder / place / "notebooks").glob("*.html"))
        notebooks = Markup("").join(
            Markup('<a href="{}/notebooks/{}">{}</a>').format(place, quote(page.name), page.stem) for page in pages
        )
        parts.append(f'<p class="names">{jumps}</p>')
        parts += [f'<p class="names">Notebooks: {notebooks}</p>'] * bool(notebooks)
        parts += [_section(folder, place, name, specs[name]) for name in there]
    return "\n".join(parts)


def _number(name: str) -> tuple[str, int]:
    """Tables, figures, then our additions, each by number; last what has a name instead."""
    kind, number = name[0], name[1:]
    return (str("TFE".index(kind)), int(number)) if kind in "TFE" and number.isdigit() else (name, 0)


def _has(place: Path, name: str) -> bool:
    return (place / f"{name}.html").exists() or (place / f"{name}.png").exists()


def _section(folder: Path, place: str, name: str, spec: Spec) -> str:
    path = folder / place / name
    suffixes = ["csv", "tex"]
    if path.with_suffix(".html").exists():
        body = f'<div class="wide">{path.with_suffix(".html").read_text(encoding="utf-8")}</div>'
    else:
        title, *lines = path.with_suffix(".txt").read_text(encoding="utf-8").splitlines()
        image = f"{place}/{name}.png"
        drawn = Markup('<p><b>{}</b></p>\n<img srcset="{} 1.5x" src="{}" alt="{}">\n<p class="note">{}</p>')
        body = str(drawn.format(title, image, image, title, Markup("<br>").join(lines)))
        suffixes = ["csv", "pdf", "png"]
    files = [f'<a href="{place}/{name}.{suffix}">{suffix.upper()}</a>' for suffix in suffixes]
    stated = folder / place / f"{name}_stated.html"
    if stated.exists():
        body += f'\n<div class="wide">{stated.read_text(encoding="utf-8")}</div>'
        files += [
            f'<a href="{place}/{name}_stated.{suffix}">{suffix.upper()} of the numbers</a>' for suffix in ("csv", "tex")
        ]
    if (folder / place / "notebooks" / f"{spec.notebook}.html").exists():
        files.append(f'<a href="{place}/notebooks/{spec.notebook}.html">notebook of section {spec.section}</a>')
    kind = "" if spec.kind == "results" else f" ({spec.kind})"
    return f'<section id="{place}-{name}">{body}<p class="files">{name}{kind}: {" · ".join(files)}</p></section>'
