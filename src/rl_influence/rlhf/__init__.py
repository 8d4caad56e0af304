"""PPO on a language model with IIF over whole generations (section 5.2 of the paper), on a CPU or on the paper's scale.

A record is a prompt with its generation. `python -m rl_influence.rlhf` prepares models, trains runs and draws results.
"""
