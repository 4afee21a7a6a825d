"""The parts of methods, each once: mathematics on tensors that knows no method."""
