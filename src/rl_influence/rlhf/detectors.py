"""Toxicity of texts, by detectors whose weights packages ship (read as plain data) or that transformers loads.

- `tox_block` (Jigsaw's comments): words -> embedding -> bidirectional LSTM over 100 places -> largest value over
  places -> two dense layers. Keras's LSTM with hard sigmoids has no counterpart in torch and is written out here.
- `hatesonar` (other data) and `profanity` (a mixture): bags of words, tf-idf, and linear models.
- any sequence classifier of transformers.

`prepare` turns the packages' files into one `.npz` each; scoring needs numpy and torch only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_influence.config import ConfigError
from rl_influence.rlhf.plain import read_plain
from rl_influence.rlhf.prompts import package_file
from rl_influence.rlhf.settings import DetectorConfig

PREPARED = Path("build/rlhf")  # relative to the folder that a study runs in
KERAS_FILTERS = str.maketrans(dict.fromkeys('!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n', " "))


class ToxBlock:
    """Six logits of each text (toxic, severe_toxic, obscene, threat, insult, identity_hate); `toxic` is the reward."""

    places, known_words = 100, 20_000

    def __init__(self, data: dict[str, np.ndarray]):
        self.index = {word: i + 1 for i, word in enumerate(data["words"].tolist())}
        self.weights = {name: torch.from_numpy(array).float() for name, array in data.items() if name != "words"}

    def words(self, text: str) -> list[int]:
        """Numbers of the known words, as Keras's tokenizer gives them: the last hundred."""
        found = [self.index.get(word) for word in text.lower().translate(KERAS_FILTERS).split(" ")]
        return [number for number in found if number is not None][-self.places :]

    @torch.no_grad()
    def all_logits(self, texts: list[str]) -> Tensor:
        """(n, 6), in float32."""
        tokens = torch.zeros(len(texts), self.places, dtype=torch.long)
        for row, text in enumerate(texts):
            numbers = self.words(text)
            tokens[row, self.places - len(numbers) :] = torch.tensor(numbers, dtype=torch.long)
        embedded = self.weights["embedding"][tokens]
        forward = self._largest_state(embedded, "forward")
        backward = self._largest_state(embedded.flip(1), "backward")
        hidden = torch.relu(
            torch.cat([forward, backward], 1) @ self.weights["dense_kernel"] + self.weights["dense_bias"]
        )
        return hidden @ self.weights["output_kernel"] + self.weights["output_bias"]

    def _largest_state(self, inputs: Tensor, direction: str) -> Tensor:
        """Largest value of each unit of an LSTM over all places, (n, units)."""
        kernel, recurrent, bias = (self.weights[f"{direction}_{part}"] for part in ("kernel", "recurrent", "bias"))
        driven = inputs @ kernel + bias
        state = memory = driven.new_zeros(len(inputs), recurrent.shape[0])
        largest = torch.full_like(state, -torch.inf)
        for place in range(self.places):
            i, f, c, o = (driven[:, place] + state @ recurrent).chunk(4, 1)
            memory = _hard_sigmoid(f) * memory + _hard_sigmoid(i) * torch.tanh(c)
            state = _hard_sigmoid(o) * torch.tanh(memory)
            largest = torch.maximum(largest, state)
        return largest

    def logits(self, texts: list[str]) -> np.ndarray:
        """Raw `toxic` logit of each text, (n,)."""
        return np.concatenate(
            [self.all_logits(texts[i : i + 256])[:, 0].double().numpy() for i in range(0, len(texts), 256)]
        )

    def toxicity(self, texts: list[str]) -> np.ndarray:
        """Probability of `toxic`, (n,)."""
        return 1 / (1 + np.exp(-self.logits(texts)))


def _hard_sigmoid(x: Tensor) -> Tensor:
    return (0.2 * x + 0.5).clamp(0, 1)


class BagOfWords:
    """tf-idf of a fixed vocabulary, L2-normalised, and linear scores of it.

    Args:
        data: `words`, `idf`, `coefficients` (classes or members, words), `intercepts`, `pattern` of a word, and `kind`:
            softmax (1 - probability of the last class) or sigmoids (mean over calibrated members, `slopes`, `offsets`).
    """

    def __init__(self, data: dict[str, np.ndarray]):
        self.data = data
        self.pattern = re.compile(str(data["pattern"]))
        self.index = {word: i for i, word in enumerate(data["words"].tolist())}

    def toxicity(self, texts: list[str]) -> np.ndarray:
        """Probability in [0, 1] of each text, (n,)."""
        return np.array([self._one(text) for text in texts])

    def _one(self, text: str) -> float:
        found = [self.index[word] for word in self.pattern.findall(text.lower()) if word in self.index]
        words, counts = np.unique(np.array(found, dtype=int), return_counts=True)
        weights = counts * self.data["idf"][words]
        weights = weights / max(np.linalg.norm(weights), 1e-12)
        scores = self.data["coefficients"][:, words] @ weights + self.data["intercepts"]
        if str(self.data["kind"]) == "softmax":
            exponentials = np.exp(scores - scores.max())
            return float(1 - exponentials[-1] / exponentials.sum())
        return float(np.mean(1 / (1 + np.exp(self.data["slopes"] * scores + self.data["offsets"]))))


class Classifier:
    """A sequence classifier of transformers.

    Args:
        config: its folder or name, and the class that counts.
    """

    def __init__(self, config: DetectorConfig, device: str):
        from rl_influence.rlhf.models import load_pretrained  # brings transformers

        self.config, self.device = config, device
        self.tokenizer = load_pretrained("tokenizer", config.name)
        self.tokenizer.padding_side = "right"  # some classifiers read the first place
        self.model = load_pretrained("classifier", config.name).to(device).eval()
        if not config.label < self.model.config.num_labels:
            raise ConfigError(
                f"label = {config.label}: {config.name} has classes 0 to {self.model.config.num_labels - 1}"
            )

    @torch.no_grad()
    def _all_logits(self, texts: list[str]) -> Tensor:
        parts = []
        for i in range(0, len(texts), 64):
            inputs = self.tokenizer(
                texts[i : i + 64], padding=True, truncation=True, max_length=512, return_tensors="pt"
            )
            parts.append(self.model(**inputs.to(self.device)).logits.double().cpu())
        return torch.cat(parts)

    def logits(self, texts: list[str]) -> np.ndarray:
        """Raw logit of the chosen class, with the sign that makes more mean more toxic, (n,)."""
        logits = self._all_logits(texts)[:, self.config.label].numpy()
        return logits if self.config.toxic else -logits

    def toxicity(self, texts: list[str]) -> np.ndarray:
        """Probability of being toxic, (n,)."""
        probability = self._all_logits(texts).softmax(1)[:, self.config.label].numpy()
        return probability if self.config.toxic else 1 - probability


def load_detector(config: DetectorConfig, device: str = "cpu") -> Any:
    """A detector with `toxicity(texts)`; those that can be a reward have `logits(texts)` too.

    Raises:
        ConfigError: if the packages' files are not prepared, or the classifier cannot be loaded.
    """
    if config.name not in PACKAGED:
        return Classifier(config, device)
    path = PREPARED / f"{config.name}.npz"
    if not path.exists():
        raise ConfigError(f"{path} is missing: python -m rl_influence.rlhf prepare detectors")
    with np.load(path, allow_pickle=False) as file:
        data = dict(file)
    return ToxBlock(data) if config.name == "tox_block" else BagOfWords(data)


def reward_function(config: DetectorConfig, device: str = "cpu") -> Callable[[list[str]], np.ndarray]:
    """Texts -> rewards: the negative toxic logit, or the logit of a class that is not toxic."""
    detector = load_detector(config, device)
    if not hasattr(detector, "logits"):
        raise ConfigError(f"reward.name = {config.name!r} has no logit; choices: tox_block, or a classifier")
    return lambda texts: -detector.logits(texts)


def prepare(folder: str | Path = PREPARED) -> None:
    """Writes the packages' detectors as `<name>.npz`."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, read in PACKAGED.items():
        np.savez_compressed(Path(folder) / f"{name}.npz", **read())


def _read_tox_block() -> dict[str, np.ndarray]:
    import h5py

    encoder = read_plain(package_file("tox-block", "tox_block/trained_models/encoder_0.1.2.pkl"))
    index = encoder["tokenizer"]["word_index"]
    words = [word for word, number in sorted(index.items(), key=lambda item: item[1]) if number < ToxBlock.known_words]
    with h5py.File(package_file("tox-block", "tox_block/trained_models/lstm_model_0.1.2.h5")) as file:
        layers = file["model_weights"]
        data = {
            "words": np.array(words),
            "embedding": layers["embedding/embedding/embeddings:0"][:],
            "dense_kernel": layers["dense/dense/kernel:0"][:],
            "dense_bias": layers["dense/dense/bias:0"][:],
            "output_kernel": layers["dense_1/dense_1/kernel:0"][:],
            "output_bias": layers["dense_1/dense_1/bias:0"][:],
        }
        for direction in ("forward", "backward"):
            layer = layers[f"bidirectional/bidirectional/{direction}_lstm"]
            names = {"kernel": "kernel:0", "recurrent": "recurrent_kernel:0", "bias": "bias:0"}
            data |= {f"{direction}_{part}": layer[name][:] for part, name in names.items()}
    return data


def _read_hatesonar() -> dict[str, np.ndarray]:
    import onnx

    graph = onnx.load(str(package_file("hatesonar", "hatesonar/model/model.onnx"))).graph
    attributes = {
        (node.op_type, a.name): onnx.helper.get_attribute_value(a) for node in graph.node for a in node.attribute
    }
    words = np.array([word.decode() for word in attributes["TfIdfVectorizer", "pool_strings"]])
    (idf,) = (onnx.numpy_helper.to_array(value) for value in graph.initializer if value.name == "idfcst")
    places = np.array(attributes["TfIdfVectorizer", "ngram_indexes"])
    coefficients = np.array(attributes["LinearClassifier", "coefficients"]).reshape(-1, len(words))
    return {
        "kind": np.array("softmax"),
        "pattern": np.array(attributes["Tokenizer", "tokenexp"].decode()),
        "words": words,
        "idf": idf[places].astype(float),
        "coefficients": coefficients[:, places],
        "intercepts": np.array(attributes["LinearClassifier", "intercepts"]),
    }


def _read_profanity() -> dict[str, np.ndarray]:
    vectorizer = read_plain(package_file("alt-profanity-check", "profanity_check/data/vectorizer.joblib"))
    model = read_plain(package_file("alt-profanity-check", "profanity_check/data/model.joblib"))
    members = model["calibrated_classifiers_"]
    calibrators = [member["calibrators"][0] for member in members]
    vocabulary = vectorizer["vocabulary_"]

    def numbers(key: str) -> np.ndarray:  # a numpy scalar: its bytes are the second argument
        return np.array([np.frombuffer(calibrator[key].args[1], "<f8")[0] for calibrator in calibrators])

    return {
        "kind": np.array("sigmoids"),
        "pattern": np.array(vectorizer["token_pattern"]),
        "words": np.array(sorted(vocabulary, key=lambda word: int(vocabulary[word]))),
        "idf": vectorizer["_tfidf"]["idf_"],
        "coefficients": np.concatenate([member["estimator"]["coef_"] for member in members]),
        "intercepts": np.concatenate([member["estimator"]["intercept_"] for member in members]),
        "slopes": numbers("a_"),
        "offsets": numbers("b_"),
    }


PACKAGED = {"tox_block": _read_tox_block, "hatesonar": _read_hatesonar, "profanity": _read_profanity}
