"""The paper's claims, each with a verdict computed from tables by rules that `config/claims.yaml` fixes beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from rl_influence.analysis.reported import Reported
from rl_influence.config import Config

from .evaluation import confidence_of, evaluate
from .models import CheckConfig, ClaimConfig, Claims, load_claims
from .power import multiplicity, power
from .verdicts import VERDICTS, case_status
from .wording import MARKS, number_text, texts

CLAIM_TABLES = ("claims", "claims_checks", "claims_power", "claims_multiplicity")
__all__ = ["CLAIM_TABLES", "MARKS", "VERDICTS", "CheckConfig", "ClaimConfig", "Claims", "case_status", "confidence_of"]
__all__ += ["evaluate", "judge_study", "level_of", "load_claims", "number_text", "texts"]


def level_of(config: Config) -> float:
    """The level of a study's intervals: 95 %, or what the rules of its catalogue, if it has any, adjust it to."""
    known = (Path(config.folder) / "claims.yaml").exists()
    return confidence_of(load_claims(config.folder), config.study) if known else 0.95


def judge_study(
    claims: Claims, config: Config, tables: Mapping[str, pd.DataFrame], reported: Reported | None = None
) -> dict[str, pd.DataFrame]:
    """All tables of `CLAIM_TABLES`: verdicts, checks, the power of the rules, and what counting many checks does."""
    found = evaluate(claims, config, tables, reported)
    return found | {"claims_power": power(claims, found["claims_checks"]), "claims_multiplicity": multiplicity(claims)}
