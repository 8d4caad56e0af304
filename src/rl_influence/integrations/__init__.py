"""Adapters to other libraries' PPO; each is an optional extra."""
