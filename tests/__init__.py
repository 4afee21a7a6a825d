"""A package, so that no installed package of this name takes its place in processes that the tests start."""
