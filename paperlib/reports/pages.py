"""Pages from the templates of this folder, which escape every text that they are given."""

from pathlib import Path
from typing import Any

import orjson
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from paperlib.files import write

TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def as_json(value: Any, **_: Any) -> str:
    """Return a value as short JSON, in which null stands for numbers that JSON lacks, NaN and infinity."""
    return orjson.dumps(value).decode()


TEMPLATES.policies["json.dumps_function"] = as_json


def render(template: str, **fields: Any) -> str:
    """Fill in a template; of its fields only `Markup` is taken as HTML."""
    return TEMPLATES.get_template(f"{template}.html").render(fields)


def write_page(path: Path, template: str, **fields: Any) -> Path:
    """Fill in a template and write it; return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, render(template, **fields).encode())
    return path
