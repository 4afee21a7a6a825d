"""The gallery: one page with every table and figure on disk, and the notebooks that made them."""

import html
from pathlib import Path

from paperlib.files import write
from paperlib.papers import FIGURES, TABLES, TITLES
from paperlib.papers.report import Spec
from paperlib.papers.scales import ONE_SHOT_RULES, RULES
from paperlib.papers.values import names
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
    links = "".join(f'<a href="#{paper}">{title}</a>' for paper, title in TITLES.items())
    if (folder / "scorecard.html").exists():
        links += '<a href="scorecard.html">Scorecard</a>'
    papers = "\n".join(_paper(folder, paper) for paper in TITLES)
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
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        f"<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _rules() -> str:
    said = [f"<li><b>{scale}</b>: {html.escape(rule)}" for scale, rule in RULES.items()]
    said += [f"<li><b>{s}</b>, one-shot methods: {html.escape(r)}" for s, r in ONE_SHOT_RULES.items() if s != "paper"]
    return f'<details class="note"><summary>{", ".join(RULES)}</summary>\n<ul>{"".join(said)}</ul></details>'


def _paper(folder: Path, paper: str) -> str:
    specs: dict[str, Spec] = {**TABLES[paper], **FIGURES[paper]}
    places = {scale: folder / scale / paper for scale in RULES}
    made = {
        scale: sorted((name for name in specs if _has(place, name)), key=_number) for scale, place in places.items()
    }
    parts = [f'<h2 id="{paper}">{TITLES[paper]}</h2>']
    missing = [name for name in names(paper) if not any(name in there for there in made.values())]
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
        notebooks = "".join(f'<a href="{place}/notebooks/{page.name}">{page.stem}</a>' for page in pages)
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
        body = f'<div class="wide">{path.with_suffix(".html").read_text()}</div>'
    else:
        title, caption = path.with_suffix(".txt").read_text().split("\n")[:2]
        image = f"{place}/{name}.png"
        body = f"<p><b>{html.escape(title)}</b></p>\n"
        body += f'<img srcset="{image} 1.5x" src="{image}" alt="{html.escape(title)}">\n'
        body += f'<p class="note">{html.escape(caption)}</p>'
        suffixes = ["csv", "pdf", "png"]
    files = [f'<a href="{place}/{name}.{suffix}">{suffix.upper()}</a>' for suffix in suffixes]
    stated = folder / place / f"{name}_stated.html"
    if stated.exists():
        body += f'\n<div class="wide">{stated.read_text()}</div>'
        files += [
            f'<a href="{place}/{name}_stated.{suffix}">{suffix.upper()} of the numbers</a>' for suffix in ("csv", "tex")
        ]
    if (folder / place / "notebooks" / f"{spec.notebook}.html").exists():
        files.append(f'<a href="{place}/notebooks/{spec.notebook}.html">notebook of section {spec.section}</a>')
    kind = "" if spec.kind == "results" else f" ({spec.kind})"
    return f'<section id="{place}-{name}">{body}<p class="files">{name}{kind}: {" · ".join(files)}</p></section>'
