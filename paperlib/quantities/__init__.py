"""Quantities of finished runs: curves, ranks, risks, distances between distributions, agreement of orders."""
