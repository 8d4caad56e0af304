"""The table of what a run needs, in docs/clusters.md."""

from pathlib import Path

from benchmarks.requests import HEADER, render, table
from rl_influence.config import Config
from synthetic import write_synthetic_study

ROOT = Path(__file__).parents[2]


def test_the_document_says_what_the_results_say():
    text = (ROOT / "docs/clusters.md").read_text()
    assert HEADER in text and render(text, ROOT) == text


def test_a_table_by_value(tmp_path):
    (tmp_path / "config").symlink_to(ROOT / "config")
    (tmp_path / "results").mkdir()
    (tmp_path / "results/benchmarks.csv").write_text("name,value,unit\nmemory_frozenlake,312.4,MB\n")
    config = Config(ROOT / "config/paper.yaml")
    runs = [run for run in config.runs if run.environment == "frozenlake" and run.method == "ppo"][:3]
    folders = write_synthetic_study(tmp_path, config, skip=lambda run: run not in runs)
    for folder, seconds in zip(folders, (40, 10, 7200), strict=True):
        lines = ["round,sampling_s,influence_s,optimise_s,evaluate_s", f"0,{seconds / 2},0,{seconds / 2},0"]
        (folder / "timing.csv").write_text("\n".join(lines) + "\n")
    rows = table(tmp_path).removeprefix(HEADER).strip().split("\n")
    assert rows[0] == "| FrozenLake | 50 | 1 | 312 MB | 40 s (2 h 0 min) | 3 |"
    assert all(row.endswith(" | 1 | – | – | 0 |") for row in rows[1:])
    assert len(rows) == len({run.environment for run in config.runs})
