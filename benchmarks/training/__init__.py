"""One training loop, its optimisers, checkpoints and evaluation."""
