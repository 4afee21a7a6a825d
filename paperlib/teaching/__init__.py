"""The course's exercises, methods on the plane, and the explorers for notebooks."""
