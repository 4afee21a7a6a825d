"""Pages about many runs at once: scorecard, gallery, plan."""
