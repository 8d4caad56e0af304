"""Benchmarks: `python -m benchmarks [names]`, from the repository root.

Each prints one line per figure, `<name> <value> <unit> target <op> <target> ok|short`, and replaces that figure's row
in `results/benchmarks.csv`. What is compared is measured side by side in one run, on one thread, in CPU seconds. A
benchmark is a function with the decorator `registry.benchmark` that yields `Figure`s, in a module that `__main__`
imports.
"""
