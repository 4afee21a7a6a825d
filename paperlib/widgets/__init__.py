"""Explorers for notebooks: each function returns a widget that answers to its controls at once.

Each works with the keyboard alone, says in words what its picture shows, and leaves that picture where there is no
front end.
"""
