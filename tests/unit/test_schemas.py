"""Generated files say what the models say, and the committed configuration satisfies the schemas."""

from pathlib import Path

import jsonschema
import pytest
import yaml

from rl_influence.publish.schemas import SECTIONS, files, schemas

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", files(), ids=str)
def test_generated_files_are_up_to_date(path):
    assert (ROOT / path).read_text() == files()[path], "run python -m rl_influence.publish.schemas"


@pytest.mark.parametrize(
    "schema, file",
    [("study", f"{name}.yaml") for name in ("config", "paper", "smoke")]
    + [("environment", f"environments/{name}.yaml") for name in ("frozenlake", "minigrid", "acrobot")]
    + [("methods", "methods.yaml")],
)
def test_committed_files_satisfy_their_schema_and_typing_errors_do_not(schema, file):
    data = yaml.safe_load((ROOT / "config" / file).read_text())
    jsonschema.validate(data, schemas()[schema])
    with pytest.raises(jsonschema.ValidationError, match="Grid|Additional properties"):
        jsonschema.validate(data | {"Grid": data}, schemas()[schema])


def test_every_key_is_described():
    for model in SECTIONS:
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"
