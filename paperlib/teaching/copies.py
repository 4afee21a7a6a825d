"""Copies of the notebooks: for a reader, and without the solutions for students."""

import json
import re
import shutil
from pathlib import Path

from paperlib.paths import NOTEBOOKS

SOLUTION = re.compile(r"\s*<details><summary>Solution</summary>.*?</details>", re.DOTALL)


def write_copies(folder: Path, student: bool = False) -> int:
    """Write all notebooks, and the modules that they import, into a folder; return the number of notebooks.

    student: leave out the solutions and the code of the checks. Hints stay, and the checks work: they are imported from
    the package. Raises ValueError for a folder that is not empty.
    """
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ValueError(f"folder is {str(folder)!r}, which exists and is not empty: name a new one")
    left_out = shutil.ignore_patterns(".*", "__pycache__", "conftest.py", *["*checks.py"] * student)
    shutil.copytree(NOTEBOOKS, folder, ignore=left_out, dirs_exist_ok=True)
    copies = list(folder.rglob("*.ipynb"))
    for path in copies if student else ():
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            cell["source"] = SOLUTION.sub("", "".join(cell["source"]))
        path.write_text(json.dumps(notebook, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return len(copies)
