"""Words for numbers."""


def many(number: int, what: str) -> str:
    """Return ``1 client``, ``2 clients``."""
    return f"{number} {what}{'s' * (number != 1)}"
