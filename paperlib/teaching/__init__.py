"""Methods on the plane, and the explorers for notebooks."""
