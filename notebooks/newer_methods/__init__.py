"""MOON, and six methods that are newer than the papers; importing this package registers them."""

from newer_methods import fedawa, fedmuon, fednsam, fedvls, fedwmsam, fixbn, moon

__all__ = ["fedawa", "fedmuon", "fednsam", "fedvls", "fedwmsam", "fixbn", "moon"]
