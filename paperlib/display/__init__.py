"""The look of results: plots in one style, and tables in a notebook, a terminal and LaTeX."""
