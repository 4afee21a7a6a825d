"""The gallery: one page with every table and figure on disk, and the notebooks that made them."""

import html
from pathlib import Path

from paperlib.papers import FIGURES, TABLES, TITLES
from paperlib.papers.scales import ONE_SHOT_RULES, RULES
from paperlib.paths import figures as figures_folder

STYLE = """
body { font-family: Georgia, serif; max-width: 70em; margin: 2em auto; padding: 0 1em; color: #222 }
table { font-family: Helvetica, Arial, sans-serif; font-size: 85% } section { margin: 2.5em 0; overflow-x: auto }
img { max-width: 100% } .note { color: #555 } nav a { margin-right: 1em }
"""


def build(folder: Path | None = None) -> Path:
    """Write ``index.html`` from what lies in the folder (default: figures/); returns its path.

    Scales come from the smallest to the largest; nothing is computed.
    """
    folder = folder or figures_folder()
    parts, links = [], []
    for scale in RULES:
        for paper, title in TITLES.items():
            place = folder / scale / paper
            names = [name for name in (*TABLES.get(paper, {}), *FIGURES.get(paper, {})) if _has(place, name)]
            if not names:
                continue
            anchor = f"{scale}-{paper}"
            links.append(f'<a href="#{anchor}">{title}, scale {scale}</a>')
            rule = (ONE_SHOT_RULES if paper == "fedhydra" else RULES)[scale]
            parts.append(f'<h2 id="{anchor}">{title}, scale {scale}</h2>\n<p class="note">{html.escape(rule)}</p>')
            pages = sorted((place / "notebooks").glob("*.html"))
            notebooks = [f'<a href="{page.relative_to(folder).as_posix()}">{page.stem}</a>' for page in pages]
            if notebooks:
                parts.append(f'<p class="note">Notebooks: {" · ".join(notebooks)}</p>')
            parts += [_section(folder, place, paper, name) for name in names]
    page = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Paper companion</title>'
        f"<style>{STYLE}</style></head>\n<body>\n<h1>Tables and figures, reproduced</h1>\n"
        f"<p>Our value beside the printed one. Best value of each column in bold.</p>\n<nav>{' '.join(links)}</nav>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.html").write_text(page)
    return folder / "index.html"


def _has(place: Path, name: str) -> bool:
    return (place / f"{name}.html").exists() or (place / f"{name}.png").exists()


def _section(folder: Path, place: Path, paper: str, name: str) -> str:
    spec = TABLES[paper].get(name) or FIGURES[paper][name]
    here = place.relative_to(folder).as_posix()
    suffixes: tuple[str, ...]
    if (place / f"{name}.html").exists():
        body, suffixes = (place / f"{name}.html").read_text(), ("csv", "tex")
    else:
        title, caption = (place / f"{name}.txt").read_text().split("\n")[:2]
        body = f'<p><b>{html.escape(title)}</b></p>\n<img src="{here}/{name}.png" alt="{html.escape(title)}">\n'
        body += f'<p class="note">{html.escape(caption)}</p>'
        suffixes = ("csv", "pdf", "png")
    files = [f'<a href="{here}/{name}.{suffix}">{suffix.upper()}</a>' for suffix in suffixes]
    if (place / "notebooks" / f"{spec.notebook}.html").exists():
        files.append(f'<a href="{here}/notebooks/{spec.notebook}.html">notebook of section {spec.section}</a>')
    return f'<section id="{here}-{name}">{body}<p class="note">{" · ".join(files)}</p></section>'
