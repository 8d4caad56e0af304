"""What `rl-influence new` writes: an environment, a method or a figure that works as it stands, to be changed."""

from __future__ import annotations

from pathlib import Path

from rl_influence.config import ConfigError, load_methods
from rl_influence.config.loading import identifier
from rl_influence.runs.files import write_atomic

ENVIRONMENT = """\
# config/README.md lists every key with its meaning, default and bounds; docs/extending.md has a worked example.
id: {name}
label: {name}
gym_id: CartPole-v1        # any id of gymnasium's registry; `package` names what registers it, if not gymnasium
rounds: 20
drop_percent: 50           # p of the methods that say `chosen`
ppo: {{n_steps: 1024}}       # what differs from the defaults
evaluation: {{kind: batched, episodes: 20}}
"""
METHOD = """\

# A selection, and what changes of PPO: config/README.md. A new kind of selection is a function in rules.py.
{name}: {{label: {name}, selection: {{kind: influence, drop_percent: {percent:g}}}}}
"""
FIGURE = '''\
"""Test return after the last round, every seed a point. Environments stand beside each other."""

from __future__ import annotations

from matplotlib.figure import Figure

from rl_influence.config import Config

from . import panels, style

READS = ("curves_per_seed", "missing_runs")


def draw(tables: dict, config: Config) -> Figure:
    curves = tables["curves_per_seed"]
    if curves.empty:
        raise style.Nothing("no run has finished")
    last = curves[curves["round"] == curves.groupby("environment")["round"].transform("max")]
    environments = list(last["environment"].unique())
    figure, axes = style.grid(len(environments))
    for environment, axis in zip(environments, axes[:, 0], strict=True):
        for method, seeds in panels.rows_of(last, (environment,)).groupby("method", sort=False):
            look = style.look(config, method) | {"linestyle": "none"}
            axis.plot([look["label"]] * len(seeds), seeds["test_return"], **look)
        axis.set_title(config.environments[environment].label)
    return style.finish(figure, [], style.missing_note(tables["missing_runs"], panels.conditions(curves), config))
'''
FIGURES = Path(__file__).parent / "figures"
PERCENTS = (75, 37.5, 90, 60, 40, 30, 20, 10, 5)


def new(kind: str, name: str, catalogue: Path) -> str:
    """Writes a skeleton; what was there before stays.

    Args:
        kind: environment, method or figure.
        catalogue: the folder of `methods.yaml` and `environments/`.

    Returns:
        What to do next, in a line or two.

    Raises:
        ConfigError: for a name that cannot be one, or that is taken.
        OSError: if the file cannot be written.
    """
    identifier(name, kind)
    return {"environment": _environment, "method": _method, "figure": _figure}[kind](name, catalogue)


def _environment(name: str, catalogue: Path) -> str:
    path = catalogue / "environments" / f"{name}.yaml"
    _write_new(path, ENVIRONMENT.format(name=name))
    return f"{path}: change it, and name {name} in a study's grid"


def _method(name: str, catalogue: Path) -> str:
    path = catalogue / "methods.yaml"
    methods = load_methods(path)
    if name in methods:
        raise ConfigError(f"{path}: there is a method {name} already")
    taken = {method.selection.drop_percent for method in methods.values()}
    percent = next(p for p in PERCENTS if p not in taken)
    write_atomic(path, (path.read_text(encoding="utf-8") + METHOD.format(name=name, percent=percent)).encode())
    return f"{path}: change its last entry, and name {name} in a study's grid\nmake regenerate adds its golden runs"


def _figure(name: str, catalogue: Path) -> str:
    path = FIGURES / f"{name}.py"
    _write_new(path, FIGURE)
    return f"{path}: change it, and list {name} under a study's figures"


def _write_new(path: Path, text: str) -> None:
    if path.exists():
        raise ConfigError(f"{path}: exists already")
    write_atomic(path, text.encode())
