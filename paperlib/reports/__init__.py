"""Pages about many runs at once: scorecard, comparison, calibration, gallery, plan."""
