"""Writes the address of the repository (pyproject.toml, `[tool.paperlib] repository`) into README.md and CITATION.cff.

An empty address leaves out all that needs one. `python docs/repository.py`, or `make address`.
"""

import re
import tomllib
from pathlib import Path
from urllib.parse import urlparse

ROOT = Path(__file__).resolve().parents[1]


def address() -> str:
    """Such as https://github.com/owner/name; empty where the project has none yet. Raises ValueError for any other."""
    text = str(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["paperlib"]["repository"])
    if text and not re.fullmatch(r"https://[\w.-]+/[\w.-]+/[\w.-]+", text):
        raise ValueError(f"repository in pyproject.toml is {text!r}, but must be like https://github.com/owner/name")
    return text


def lines_of_readme(where: str) -> str:
    """What the README says with an address: how to clone, and on GitHub the buttons that open the notebooks."""
    if not where:
        return ""
    name = where.rpartition("/")[2]
    clone = f"```\ngit clone {where}\ncd {name}\n```\n"
    url = urlparse(where)
    if url.hostname != "github.com":
        return clone
    binder = f"https://mybinder.org/v2/gh{url.path}/HEAD?urlpath=lab/tree/notebooks/start.ipynb"
    colab = f"https://colab.research.google.com/github{url.path}/blob/HEAD/notebooks/start.ipynb"
    buttons = (
        f"[![Binder](https://mybinder.org/badge_logo.svg)]({binder})\n"
        f"[![Colab](https://colab.research.google.com/assets/colab-badge.svg)]({colab})\n\n"
        f'On Colab, install first: `%pip install "paperlib[notebooks] @ git+{where}"`.\n\n'
    )
    return buttons + clone


def write(readme: Path, citation: Path, where: str) -> None:
    """Put the address into both files, in place of the one before."""
    first, last = "<!-- repository -->\n", "<!-- /repository -->"
    before, _, rest = readme.read_text(encoding="utf-8").partition(first)
    after = rest.partition(last)[2]
    readme.write_text(f"{before}{first}{lines_of_readme(where)}{last}{after}", encoding="utf-8")
    text = re.sub(r"^repository-code: .*\n", "", citation.read_text(encoding="utf-8"), flags=re.M)
    line = f"repository-code: {where}\n" if where else ""
    citation.write_text(text.replace("license: MIT\n", f"license: MIT\n{line}", 1), encoding="utf-8")


if __name__ == "__main__":
    write(ROOT / "README.md", ROOT / "CITATION.cff", address())
