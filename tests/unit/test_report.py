"""The report: what it says, that it loads nothing, and that it fits a phone."""

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from rl_influence import figures
from rl_influence.analysis.claims import CLAIM_TABLES, VERDICTS, judge_study, load_claims
from rl_influence.analysis.curves import load_study
from rl_influence.analysis.numbers import interval
from rl_influence.analysis.registry import ANALYSIS_OF
from rl_influence.analysis.reported import load_reported
from rl_influence.analysis.tables import TABLES, make_tables, write_table
from rl_influence.config import Config
from rl_influence.publish import run_pages
from rl_influence.publish.report import markdown, render, write_report
from rl_influence.publish.tables import SHOWN, readable, words
from rl_influence.runs.provenance import fingerprint
from rl_influence.runs.store import ResultError, Results, run_directory
from synthetic import CATALOGUE, write_synthetic_study

REPOSITORY = CATALOGUE.parent
FIGURES = ["fig06_returns", "fig06_efficiency", "fig_controls", "fig_claims"]
METHODS = ["ppo", "iif_p50", "iif_p12_5", "random", "ppo_noclip", "ppo_matched_updates", "advantage_h1"]
LOST = ("minigrid", "iif_p12_5", 2)
OLD = "results/made_up/runs/frozenlake/ppo/seed0-00000000"


def build(root: Path, **study) -> Config:
    """A made-up study with everything that a report needs below `root`."""
    grid = [{"environments": ["frozenlake", "minigrid"], "methods": METHODS, "seeds": [0, 1, 2], "rounds": 8}]
    config = Config({"study": "made_up", "grid": grid, "figures": FIGURES, **study}, CATALOGUE)
    write_synthetic_study(root, config, skip=lambda run: (run.environment, run.method, run.seed) == LOST)
    shutil.copytree(root / run_directory("made_up", config.runs[0]), root / OLD)
    tables = make_tables(load_study(config, root), reported=load_reported(CATALOGUE))
    for name, table in tables.items():
        write_table(table, root / "results/made_up" / "tables" / f"{name}.csv")
    for name, table in judge_study(load_claims(CATALOGUE), config, tables).items():
        write_table(table, root / "results/made_up/tables" / f"{name}.csv")
    drawn = root / "paper_figures/made_up"
    for name in FIGURES:
        reads = [*figures.FIGURES[name].reads, "runs"]
        paths = {table: root / "results/made_up/tables" / f"{table}.csv" for table in reads}
        figures.draw(name, paths, drawn / f"{name}.pdf", drawn / f"{name}.png", config)
    shutil.copytree(REPOSITORY / "docs", root / "docs")
    return config


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    root = tmp_path_factory.mktemp("report")
    return build(root), root


@pytest.fixture(scope="module")
def page(built):
    config, root = built
    return render(config, root)


@pytest.fixture(scope="module")
def written(built, tmp_path_factory):
    """The folder with the report and its runs' pages."""
    config, root = built
    folder = tmp_path_factory.mktemp("written")
    write_report(config, folder / "made_up.html", root)
    return folder


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "img", "br", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def text_of(page):
    bare = re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", bare)))


def test_nothing_is_loaded_and_every_link_leads_somewhere(page, written):
    parsed = Tags(page)
    assert parsed.open == []  # every tag is closed
    assert {tag for tag, _ in parsed.tags}.isdisjoint({"link", "iframe", "object", "base", "form"})
    assert [attributes for tag, attributes in parsed.tags if tag == "script"] == [{}]  # one, inline
    identifiers = [attributes["id"] for _, attributes in parsed.tags if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    for _, attributes in parsed.tags:
        assert not [name for name in attributes if name.startswith("on") or name in ("srcset", "style", "action")]
        assert attributes.get("src", "data:image/png;base64,").startswith("data:image/png;base64,")
        if "href" in attributes and not attributes["href"].startswith("https:"):
            path, _, place = attributes["href"].partition("#")
            assert (written / path).is_file() if path else place in identifiers
    assert "url(" not in page and "@import" not in page and "http://" not in page
    assert sum(tag == "img" for tag, _ in parsed.tags) == len(FIGURES)


def test_verdicts_come_first_with_every_claim(page, built):
    _, root = built
    paths = [root / "results/made_up/tables" / f"{name}.csv" for name in CLAIM_TABLES[:2]]
    claims, checks = (pd.read_csv(path, keep_default_na=False) for path in paths)
    names = ("found", "verdicts", "figures", "tables", "provenance")
    places = [page.index(f'<section id="{name}"') for name in names]
    assert places[0] < page.index("<nav") < places[1] and places == sorted(places)
    rows = re.findall(r'<tr id="claim(\d+)">(.*?)</tr>', page, flags=re.DOTALL)
    tested = claims[claims["verdict"] != "not run"]
    assert [int(number) for number, _ in rows] == tested["claim"].tolist()
    untested = claims.loc[claims["verdict"] == "not run", "claim"].astype(str)
    assert f"Not in this study: claims {', '.join(untested)}." in text_of(page)
    for (_, row), claim in zip(rows, tested.to_dict("records"), strict=True):
        found = re.search(r'<span class="verdict ([a-z-]+)">([a-z ]+)</span>', row)
        assert found[2] == claim["verdict"] in VERDICTS and found[1] == claim["verdict"].replace(" ", "-")
        assert claim["rule"] in text_of(row)
    first = checks[(checks["quantity"] == "se_ave") & (checks["environment"] == "frozenlake")].iloc[0]
    shown = interval(*(float(first[name]) for name in ("value", "low", "high")), percent=True)
    assert shown in rows[0][1] and "(paper: 34 ± 2)" in rows[0][1]
    for verdict in VERDICTS:
        number = (claims["verdict"] == verdict).sum()
        assert (f"{verdict} : {number}" in text_of(page)) == (number > 0)


def test_missing_and_leftover_runs_are_named(page, built):
    config, root = built
    text = text_of(page)
    assert f"{len(config.runs) - 1} of {len(config.runs)} runs are in. Missing, and part of no mean: 1" in text
    assert "missing runs: minigrid iif_p12_5 seed 2" in text
    assert Results(root).leftover(config) == [OLD] and OLD in text
    assert all(fingerprint(run.spec)[:16] in text for run in config.runs)


def test_every_figure_and_table_has_a_caption_and_its_source(page):
    for name in FIGURES:
        caption = figures.FIGURES[name].caption.split("\n")[0][:40]
        figure = re.search(f'<figure id="{name}">(.*?)</figure>', page, flags=re.DOTALL)[1]
        assert caption.replace("*", "").split("`")[0].strip() in text_of(figure)
        assert re.search(r"From tables/\w+\.csv \([0-9a-f]{8}\)", re.sub(r"\s+", " ", re.sub("<[^>]*>", "", figure)))
    for name in ("efficiency", "controls", "table_5", "runtimes"):
        assert f'<h3 id="{name}">' in page
    assert "table_3" not in re.findall(r'<h3 id="(\w+)">', page)  # no Adam runs: no empty table


def test_captions_say_which_runs_are_missing(page):
    figure = re.search('<figure id="fig06_returns">(.*?)</figure>', page, flags=re.DOTALL)[1]
    assert "Missing runs: 1 of MiniGrid, IIF, p = 12.5 % (missing_runs.csv)." in text_of(figure)


def test_figures_and_page_name_the_same_runs(page, built):
    _, root = built
    with Image.open(root / "paper_figures/made_up/fig_controls.png") as image:
        source = image.text["Description"]
    assert re.match(r"study made_up: 41 of 42 runs, results version \d+, digest .* [0-9a-f]{16}; ", source)
    assert source[1:] in text_of(page)
    pdf = (root / "paper_figures/made_up/fig_controls.pdf").read_bytes()
    assert source[:30].encode() in pdf


def test_every_run_that_is_there_has_a_page(built, written, page):
    config, root = built
    names = {f"{run.environment}-{run.method}-seed{run.seed}.html": run for run in config.runs}
    del names["minigrid-iif_p12_5-seed2.html"]  # the lost one
    assert {path.name for path in (written / "made_up").iterdir()} == {*names}
    assert {*re.findall(r'href="made_up/([^"]+)"', page)} == {*names}
    text = (written / "made_up/frozenlake-iif_p50-seed1.html").read_text()
    assert Tags(text).open == [] and "<script" not in text and "src=" not in text
    run = names["frozenlake-iif_p50-seed1.html"]
    curve = (root / run_directory("made_up", run) / "curve.csv").read_text().splitlines()
    assert f"Test return {float(curve[-1].split(',')[2]):.4g} after 8 rounds." in text_of(text)
    assert fingerprint(run.spec) in text and "selection.drop_percent 50.0" in text_of(text)
    assert re.findall(r'href="(.*?)"', text) == ["../made_up.html#runs"]


def test_a_panel_of_a_runs_page_is_its_curve():
    x, y = np.arange(5.0), np.array([2.0, np.nan, 4.0, 3.0, 2.0])
    shown = run_pages._panel("p", {"test_return": (x, y), "empty": (x, np.full(5, np.nan))}, 4)
    assert (shown["low"], shown["high"], shown["last"]) == ("2", "4", "4")
    points = "0.0,100.0 150.0,0.0 225.0,50.0 300.0,100.0"  # the way down is the way up
    assert shown["lines"] == [{"name": "test_return", "points": points}]
    assert run_pages._panel("p", {"one": (x[:1], y[:1])}, 0)["lines"][0]["points"] == "0.0,100.0 0.0,100.0"
    assert run_pages._panel("p", {"empty": (x, np.full(5, np.nan))}, 4) == {}


@pytest.mark.parametrize(("study", "level"), [("made_up", "95 %"), ("confirm", "97.1 %")])
def test_intervals_have_the_level_of_their_study(built, tmp_path, study, level):
    config, root = built
    if study != config.study:
        for name in ("results", "paper_figures"):
            shutil.copytree(root / name / config.study, tmp_path / name / study)
        config, root = Config(config.study_config.model_dump(mode="json") | {"study": study}, CATALOGUE), tmp_path
    text = text_of(render(config, root))
    assert {*re.findall(r"Intervals: (.*?), t over", text)} == {level}
    assert f"one number with its {level} t interval" in text


def test_more_than_one_version_is_a_warning(built, tmp_path):
    config, root = built
    clone = tmp_path / "clone"
    shutil.copytree(root, clone)
    assert "different versions" not in render(config, clone)
    path = clone / "results/made_up/tables/runs.csv"
    runs = pd.read_csv(path, dtype=str, keep_default_na=False)
    runs.loc[0, "torch"] = "1.0"
    runs.to_csv(path, index=False)
    assert "The runs were made by 2 different versions of code or packages" in text_of(render(config, clone))


def test_what_comes_from_files_is_escaped(built, tmp_path):
    config, root = built
    clone = tmp_path / "clone"
    shutil.copytree(root, clone)
    path = clone / "results/made_up/tables/missing_runs.csv"
    missing = pd.read_csv(path)
    missing["reason"] = "<script>alert(1)</script> & more"
    missing.to_csv(path, index=False)
    page = render(config, clone)
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in page


def test_same_results_same_bytes(built, tmp_path):
    config, root = built
    write_report(config, tmp_path / "a.html", root)
    write_report(config, tmp_path / "b.html", root)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_what_is_missing_is_named_in_one_line(built, tmp_path):
    config, root = built
    files = ["results/made_up/tables/claims.csv", "paper_figures/made_up/fig_controls.png"]
    for name in files:
        clone = tmp_path / name.replace("/", "_")
        shutil.copytree(root, clone)
        (clone / name).unlink()
        with pytest.raises(ResultError, match=re.escape(name)) as caught:
            write_report(config, tmp_path / "never.html", clone)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "never.html").exists()


def test_tables_for_people():
    config = Config(CATALOGUE / "smoke.yaml")
    frame = pd.DataFrame(
        {
            "environment": ["frozenlake", "acrobot"],
            "method": ["iif_p50", "ppo"],
            "n": [3, 4],
            "expected": [3, 5],
            "se_ave": [0.25, float("nan")],
            "se_ave_sd": [0.1, float("nan")],
            "se_ave_low": [0.2, float("nan")],
            "se_ave_high": [0.3, float("nan")],
            "gain": [-12.345, 2.0],
            "paper_se_ave": [0.34, float("nan")],
            "paper_se_ave_spread": [0.02, float("nan")],
            "paper_gain_low": [0.04, float("nan")],
            "paper_gain_high": [0.33, float("nan")],
        }
    )
    assert readable(frame, config).to_dict("list") == {
        "environment": ["FrozenLake", "Acrobot"],
        "method": ["IIF, p = 50 %", "PPO"],
        "n": ["3", "4 of 5"],
        "se_ave": ["25.0 % [20.0, 30.0]", ""],
        "paper_se_ave": ["34.0 ± 2.0 %", ""],
        "gain": ["-12.3", "2"],
        "paper_gain": ["[0.04, 0.33]", ""],
    }
    assert set(SHOWN) <= {*TABLES, *ANALYSIS_OF}


@pytest.mark.slow
def test_tables_and_their_notes_are_in_words():
    """No column's or file's own name in any committed table; what is left is the paper's spelling."""
    names = r"\b(?!SE_ave|SE_peak|RT_peak|m_PPO|f_return)\w+_\w+"
    assert [text for pair in SHOWN.values() for text in pair if re.search(names, text)] == []
    seen = 0
    for path in sorted(REPOSITORY.glob("results/*/tables/*.csv")):
        config = CATALOGUE / f"{path.parts[-3]}.yaml"
        if path.stem in SHOWN and config.exists():
            frame = pd.read_csv(path, keep_default_na=False, na_values=[""])
            shown = readable(frame, Config(config))
            cells = [*map(words, shown), *pd.unique(shown.astype(str).to_numpy().ravel())]
            assert [text for text in cells if re.search(names, text)] == [], path
            seen += len(frame) > 0
    assert seen > 20


def test_a_peak_that_is_never_reached_bounds_its_time_from_below():
    quantities = ["rt_peak", "rt_peak_with_sampling", "matching_peak_s", "total_iif_s"]
    frame = pd.DataFrame({"quantity": quantities, "value": 0.5, "peak_unreached": [1, 1, 1, 0]})
    frame["unit"] = ["fraction", "fraction", "s", "s"]
    config = Config(CATALOGUE / "smoke.yaml")
    assert readable(frame, config)["value"].tolist() == ["≤ 50.0 %", "≤ 50.0 %", "≥ 0.5", "0.5"]
    wide = pd.DataFrame({"rt_peak": [0.5], "matching_peak_with_sampling_s": [2.0], "peak_unreached": [1]})
    assert readable(wide, config).iloc[0].tolist()[:2] == ["≤ 50.0 %", "≥ 2"]


def test_methods_of_one_label_keep_their_rows():
    config = Config(CATALOGUE / "smoke.yaml")
    names = ["ppo", "iif_p50"]
    for name in names:
        config.methods[name] = config.methods[name].model_copy(update={"label": "mine"})
    frame = pd.DataFrame({"environment": "frozenlake", "method": names, "quantity": "x", "value": [1.0, 2.0]})
    assert readable(frame, config)[["method", "value"]].to_dict("list") == {"method": ["mine"] * 2, "value": ["1", "2"]}


def test_heads_and_quantities_are_words_with_their_unit():
    shown = {"total_with_sampling_s": "total with sampling (s)", "se_ave": "SE_ave", "final_return": "final return"}
    assert {name: words(name) for name in shown} == shown
    frame = pd.DataFrame({"environment": ["acrobot"], "quantity": ["influence_s"], "unit": ["s"], "value": [0.5]})
    assert readable(frame, Config(CATALOGUE / "smoke.yaml")).iloc[0]["quantity"] == "influence (s)"


def test_markdown_of_the_documents():
    text = "# Title\n\nOne `a<b` and *two*\nand **three**, [a page](other.md), [a link](https://x.y).\n\n"
    text += "## Part\n* first\n  goes on\n* second\n\n1. one\n"
    assert markdown(text) == (
        "<p>One <code>a&lt;b</code> and <em>two</em>\nand <strong>three</strong>, a page, "
        '<a href="https://x.y">a link</a>.</p>\n<h3>Part</h3>\n'
        "<ul>\n<li>first\ngoes on</li>\n<li>second</li>\n</ul>\n<ol>\n<li>one</li>\n</ol>\n"
    )
    table = markdown("| a | b |\n|---|---|\n| \\|x\\| | y |")
    assert '<div class="doc"><table>' in table and "<td>|x|</td>" in table


MEASURE = """<script>addEventListener("load", () => {
  const page = document.documentElement, images = [...document.images], errors = window.errors;
  const wide = [...document.querySelectorAll("body *")].filter(e => !e.closest(".scroll, .doc")
    && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName + "." + e.className);
  for (const part of document.querySelectorAll("details")) part.open = true;
  const table = document.querySelector("#efficiency ~ .scroll table");
  const tools = table.parentElement.previousElementSibling;
  const head = [...table.tHead.rows[0].cells].find(cell => cell.textContent === "SE_ave");
  const shown = () => [...table.tBodies[0].rows].filter(row => !row.hidden);
  const values = () => shown().map(row => row.cells[head.cellIndex].textContent);
  const made = ["0 % [-2, 2]", "-3.5 %", "\u2264 0.5 %", ""];
  made.forEach((text, k) => table.tBodies[0].rows[k].cells[head.cellIndex].textContent = text);
  head.click();
  const rising = values();
  head.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", bubbles: true}));
  const falling = values();
  const input = tools.querySelector("input");
  input.value = "minigrid random";
  input.dispatchEvent(new Event("input"));
  const filtered = shown().map(row => row.cells[0].textContent + " " + row.cells[1].textContent);
  parent.postMessage(JSON.stringify({width: innerWidth, scroll: page.scrollWidth, wide: wide.slice(0, 5), rising,
    falling, filtered, errors, count: tools.querySelector(".count").textContent, images: images.length,
    loaded: images.filter(i => i.complete && i.naturalWidth > 100).length}), "*");
});</script></body>"""
WATCH = (
    """<script>window.errors = []; addEventListener("error", event => errors.push(event.message));</script></head>"""
)
FRAME = """<!DOCTYPE html><script>onmessage = event => document.title = event.data</script>
<iframe src="report.html" style="width: WIDTHpx; height: 900px; border: 0"></iframe>"""  # a window has at least 500 px


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_fits_sorts_and_filters_in_a_browser(page, tmp_path, width):
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if not browser:
        pytest.skip("chromium is not installed (Debian: apt-get install chromium)")
    watched = page.replace("</head>", WATCH, 1).replace("</body>", MEASURE, 1)
    (tmp_path / "report.html").write_text(watched)
    (tmp_path / "frame.html").write_text(FRAME.replace("WIDTH", str(width)))
    arguments = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    arguments += ["--window-size=1400,1000", "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=20000"]
    arguments += ["--dump-dom", (tmp_path / "frame.html").as_uri()]
    dom = subprocess.run([browser, *arguments], capture_output=True, text=True, timeout=120, check=True).stdout
    found = json.loads(html.unescape(re.search(r"<title>(.*?)</title>", dom)[1]))
    assert found["errors"] == []
    assert found["width"] == width and found["scroll"] <= width and found["wide"] == []
    assert found["loaded"] == found["images"] == len(FIGURES)
    assert found["rising"].pop() == found["falling"].pop() == ""  # last, whichever way
    numbers = [float(re.search(r"-?[0-9.]+", text)[0]) for text in found["rising"]]
    assert numbers == sorted(numbers) and {-3.5, 0, 0.5} < set(numbers) and found["falling"] == found["rising"][::-1]
    assert found["filtered"] == ["MiniGrid Random"] and found["count"].startswith("1 of ")
