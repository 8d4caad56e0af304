"""What a study needs of a GPU: memory and seconds a round, from its settings and the model's shape.

A bound from arithmetic, with a share of the peak that language models reach, and for single-sequence steps a floor: the
paper's own 85.56 s for 1,024 steps of one sequence through 32 layers, 2.6 ms a layer and step, which is the time that
starting kernels takes and not the arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

from rl_influence.rlhf.settings import RunSpec

UTILISATION = 0.35  # of the peak, in batches; generation reads all weights once a token instead
SECONDS_PER_LAYER_AND_STEP = 85.56 / 1024 / 32
PASSES = {"forward": 2, "backward": 2, "jvp": 2}  # FLOPs per parameter and token; frozen weights need no gradient
BYTES = {"float64": 8, "float32": 4, "bfloat16": 2}


@dataclass(frozen=True)
class Architecture:
    """Shape of a decoder."""

    hidden: int
    layers: int
    vocabulary: int
    positions: int

    @property
    def parameters(self) -> int:
        """Weights of attention and feed-forward layers, embeddings once."""
        return 12 * self.layers * self.hidden**2 + (self.vocabulary + self.positions) * self.hidden

    def adapter(self, rank: int) -> int:
        """LoRA's on queries and values."""
        return 2 * self.layers * 2 * self.hidden * rank


@dataclass(frozen=True)
class GPU:
    """Memory in GiB, bfloat16 peak in TFLOP/s, memory bandwidth in TB/s, as their makers give them."""

    name: str
    memory: float
    peak: float
    bandwidth: float


GPT_NEO_2_7B = Architecture(hidden=2560, layers=32, vocabulary=50257, positions=2048)
GPUS = (
    GPU("RTX 3090, 24 GB", 24, 71, 0.94),
    GPU("A100, 40 GB", 40, 312, 1.56),
    GPU("A100, 80 GB", 80, 312, 2.04),
    GPU("H100, 80 GB", 80, 989, 3.35),
)


def memory_gib(spec: RunSpec, model: Architecture) -> float:
    """Weights, adapter with Adam and gradients (float32), and the larger of cache and activations."""
    weights = model.parameters * (1 if spec.model.quantization == "8bit" else BYTES[spec.model.dtype])
    adapter = model.adapter(spec.adapter.rank) * 4 * 4
    size, tokens = BYTES[spec.model.dtype], spec.model.max_tokens
    cache = 2 * model.layers * model.hidden * tokens * size
    length = spec.prompts.tokens[1] + spec.generation.new_tokens[1]
    responses = tokens * spec.generation.new_tokens[1] / length
    logits = 3 * responses * model.vocabulary * 4  # in float32: logits, their softmax, their gradient
    activations = 16 * model.layers * model.hidden * tokens * size + logits
    return (weights + adapter + max(cache, activations)) / 2**30


def round_seconds(spec: RunSpec, model: Architecture, gpu: GPU, kept: float = 1.0) -> dict[str, float]:
    """Seconds of a round by phase.

    Args:
        kept: share of the batch's sequences that train.
    """
    ppo = spec.ppo
    length = spec.prompts.tokens[1] + spec.generation.new_tokens[1]
    rate = gpu.peak * 1e12 * UTILISATION

    def passes(sequences: float, work: float) -> float:
        return sequences * length * model.parameters * work / rate

    def generation(sequences: int) -> float:
        turns = -(-sequences * length // spec.model.max_tokens)
        reading = (
            turns * spec.generation.new_tokens[1] * model.parameters * BYTES[spec.model.dtype] / (gpu.bandwidth * 1e12)
        )
        launching = turns * spec.generation.new_tokens[1] * model.layers * SECONDS_PER_LAYER_AND_STEP / 3  # no gradient
        return max(reading, launching) + passes(sequences, 3 * PASSES["forward"])

    validation = spec.selection.validation
    extra = 0 if validation == "batch" or not spec.needs_scores else int(validation)
    targets = ppo.batch_size if validation == "batch" else int(validation)
    scoring = passes(targets, 4) + passes(ppo.batch_size, PASSES["forward"] + PASSES["jvp"])
    steps = ppo.n_epochs * kept * ppo.batch_size / ppo.minibatch_size
    optimise = passes(ppo.n_epochs * kept * ppo.batch_size, PASSES["forward"] + PASSES["backward"])
    return {
        "sampling_s": generation(ppo.batch_size),
        "validation_s": generation(extra) if extra else 0.0,
        "influence_s": scoring if spec.needs_scores else 0.0,
        "optimise_s": max(optimise, steps * model.layers * SECONDS_PER_LAYER_AND_STEP),
    }


def table(ppo: RunSpec, iif: RunSpec, model: Architecture = GPT_NEO_2_7B) -> str:
    """Markdown: for every GPU, memory, seconds a round and hours of a run, of PPO and of IIF that keeps half."""
    lines = [
        "| GPU | memory needed | PPO, s a round | IIF, s a round | PPO, hours | IIF, hours |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    needed = memory_gib(iif, model)
    for gpu in GPUS:
        times = [sum(round_seconds(spec, model, gpu, kept).values()) for spec, kept in ((ppo, 1.0), (iif, 0.5))]
        hours = [seconds * ppo.rounds / 3600 for seconds in times]
        fits = f"{needed:.0f} GiB" + ("" if needed < 0.92 * gpu.memory else ", lower max_tokens")
        lines.append(f"| {gpu.name} | {fits} | {times[0]:.0f} | {times[1]:.0f} | {hours[0]:.1f} | {hours[1]:.1f} |")
    return "\n".join(lines)
