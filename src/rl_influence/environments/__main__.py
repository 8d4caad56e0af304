"""`python -m rl_influence.environments`: makes every environment of a JSON list on standard input.

The process that plans a sweep starts it, see `config.check_environments`. The first environment that cannot be made is
one line on standard error and exit code 1.
"""

import json
import sys

from rl_influence.config import ConfigError, EnvironmentConfig
from rl_influence.environments import check_environment

try:
    for fields in json.load(sys.stdin):
        check_environment(EnvironmentConfig(**fields))
except ConfigError as error:
    sys.exit(" ".join(str(error).split()))
