"""What methods are made of, each once: mathematics on tensors that knows no method."""
