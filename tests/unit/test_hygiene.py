"""What the sources must not contain: ways to run code out of data files, and traces of one machine."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PICKLES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "jsonpickle"}


def tracked() -> list[Path]:
    """The project's files, as git lists them, or all of them where there is no repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]
    hidden = {".venv", ".git", ".snakemake", "__pycache__", "results", "logs", "build"}
    return [path for path in ROOT.rglob("*") if path.is_file() and not hidden & set(path.relative_to(ROOT).parts)]


def texts() -> dict[str, str]:
    found = {}
    for path in tracked():
        try:
            found[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            pass  # pictures and compressed tables
    return found


def loads_code(source: str) -> list[str]:
    """Calls and imports through which a data file could run code."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in PICKLES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PICKLES:
            found.append(node.module)
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            arguments = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            safe = {
                "np.load": arguments.get("allow_pickle") == "False",
                "numpy.load": arguments.get("allow_pickle") == "False",
                "torch.load": arguments.get("weights_only") == "True",
                "yaml.load": arguments.get("Loader") == "_StrictLoader",
            }.get(name, True)
            if (
                not safe
                or arguments.get("allow_pickle") == "True"
                or arguments.get("shell") == "True"
                or name in ("eval", "exec", "os.system", "torch.save")
                or name.split(".")[-1] in ("read_pickle", "to_pickle", "unsafe_load", "full_load", "load_all")
            ):
                found.append(f"{name} in line {node.lineno}")
    return found


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from dill import loads",
        "import joblib.parallel",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "yaml.load(text, Loader=yaml.Loader)",
        "yaml.unsafe_load(text)",
        "pd.read_pickle(path)",
        "eval(text)",
        "os.system(text)",
        "subprocess.run(text, shell=True)",
    ],
)
def test_the_search_finds(source):
    assert loads_code(source)


def test_no_data_file_can_run_code():
    sources = {name: text for name, text in texts().items() if name.startswith(("src/", "workflow/", "benchmarks/"))}
    assert "src/rl_influence/runs/checkpoints.py" in sources
    found = {name: loads_code(text) for name, text in sources.items() if name.endswith(".py")}
    assert {name: calls for name, calls in found.items() if calls} == {}
    rules = [name for name in sources if name.endswith((".smk", "Snakefile"))]
    assert rules
    for name in rules:  # not Python: by word
        assert not re.search(r"\b(pickle|eval|exec|yaml\.load|torch\.load|np\.load)\b", sources[name]), name


FOREIGN = {  # written so that this file does not contain them
    "a package registry's host": r"\b(pypi|pythonhosted|anaconda|download\.pytorch|npmjs)\.(org|com)\b",
    "a path of one machine": r"(?<![\w.}\-])/(work|tmp|resolve|root|home)(/|\b(?=[\s'\"`,;:)]))",
}


@pytest.mark.parametrize("what", FOREIGN)
def test_no_traces_of_one_machine(what):
    places = []
    for name, text in texts().items():
        if name == Path(__file__).relative_to(ROOT).as_posix():
            continue
        for match in re.finditer(FOREIGN[what], text):
            places.append(f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()}")
    assert places == []


def test_the_traces_would_be_found():
    path, host = FOREIGN["a path of one machine"], FOREIGN["a package registry's host"]
    for text in ("see /work/x", "'/tmp'", "cd /home/me", "(/root/a)"):
        assert re.search(path, text), text
    for text in ("results/work/x", "./tmp/x", "a/home/b", "${x}/tmp/y", "/workflow/x", "/homework"):
        assert not re.search(path, text), text
    assert re.search(host, "https://pypi.org/simple") and not re.search(host, "conda-forge")
