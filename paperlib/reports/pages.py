"""Pages from the templates of this folder, which escape every text that they are given."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}


def render(template: str, **fields: Any) -> str:
    """The page of a template; of its fields only `Markup` is taken as HTML."""
    return TEMPLATES.get_template(f"{template}.html").render(fields)
