"""Numbers in print."""

import math

import pytest

from rl_influence.analysis.numbers import count, decimals, interval, number

nan = math.nan


@pytest.mark.parametrize(
    "value, low, high, options, expected",
    [
        (0.0981174, 0.0449023, 0.151332, {"percent": True}, "9.8 % [4.5, 15.1]"),
        (118.3, 82.7, 153.9, {}, "118 [83, 154]"),
        (0.000173, -0.00106, 0.00141, {}, "0.0002 [-0.0011, 0.0014]"),
        (-0.0497, -0.280418, 0.180997, {"percent": True}, "-5 % [-28, 18]"),
        (1.4, 1.25, 1.55, {"unit": "s"}, "1.40 s [1.25, 1.55]"),
        (0.5, nan, nan, {"percent": True, "bound": "at most"}, "≤ 50.0 %"),
        (-0.001, -0.2, 0.198, {}, "0.00 [-0.20, 0.20]"),
        (nan, nan, nan, {}, "–"),
        (0.0, 0.0, 0.0, {}, "0 [0, 0]"),
        (0.346, nan, nan, {}, "0.346"),
    ],
)
def test_interval_is_rounded_to_two_digits_of_half_its_width(value, low, high, options, expected):
    assert interval(value, low, high, **options) == expected


@pytest.mark.parametrize(
    "value, digits, percent, expected",
    [
        (1234.5, None, False, "1234"),
        (12.345, None, False, "12.3"),
        (0.0123456, None, False, "0.0123"),
        (-0.0123456, None, False, "-0.0123"),
        (-0.05, None, False, "-0.05"),
        (100.0, None, False, "100"),
        (2.0, None, False, "2"),
        (0.00001234, None, False, "1.23e-05"),
        (0.5, None, True, "50.0"),
        (-0.0004, None, True, "0.0"),
        (-0.0004, 2, False, "0.00"),
        (0, None, False, "0"),
        (nan, 2, False, "–"),
    ],
)
def test_number(value, digits, percent, expected):
    assert number(value, digits, percent=percent) == expected


def test_decimals_show_two_digits_of_half_the_width():
    for half, expected in ((0.053, 3), (0.53, 2), (5.3, 1), (53, 0), (530, 0)):
        assert decimals(-half, half) == expected
    assert decimals(1.0, 1.0) is None and decimals(nan, nan) is None and decimals(0, math.inf) is None


def test_count():
    assert count({"n": 5, "expected": 5}) == "5" and count({"n": 4, "expected": 5}) == "4 of 5"
