"""Data attribution for online reinforcement learning (arXiv 2505.19281): scores, filters, and the paper's experiments."""
