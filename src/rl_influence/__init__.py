"""Data attribution for online reinforcement learning (arXiv 2505.19281): scores, filters, the paper's experiments."""
