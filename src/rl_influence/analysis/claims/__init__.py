"""The paper's claims, each with a verdict computed from tables by rules that `config/claims.yaml` fixes beforehand."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from rl_influence.analysis.reported import Reported
from rl_influence.config import Config

from .evaluation import confidence_of, evaluate
from .models import CheckConfig, ClaimConfig, Claims, load_claims
from .power import multiplicity, power
from .verdicts import VERDICTS, counts
from .wording import MARKS, number_text, texts

CLAIM_TABLES = ("claims", "claims_checks", "claims_power", "claims_multiplicity")
__all__ = ["CLAIM_TABLES", "MARKS", "VERDICTS", "CheckConfig", "ClaimConfig", "Claims"]
__all__ += ["confidence_of", "counts", "evaluate", "judge_study", "load_claims", "number_text", "texts"]


def judge_study(
    claims: Claims, config: Config, tables: Mapping[str, pd.DataFrame], reported: Reported | None = None
) -> dict[str, pd.DataFrame]:
    """All tables of `CLAIM_TABLES`: verdicts, checks, the power of the rules, and what counting many checks does."""
    found = evaluate(claims, config, tables, reported)
    return found | {"claims_power": power(claims, found["claims_checks"]), "claims_multiplicity": multiplicity(claims)}
