"""What is computed from finished runs: curves, ranks, risks, distances between distributions, agreement of orders."""
