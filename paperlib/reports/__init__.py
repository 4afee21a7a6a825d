"""Pages about many runs at once: scorecard, comparison, calibration, fidelity, gallery, plan."""
