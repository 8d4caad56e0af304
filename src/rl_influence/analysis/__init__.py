"""From curves to answers: sample efficiency, statistics, a study's curves, tables."""

from .sample_efficiency import SampleEfficiency, TimeEfficiency, sample_efficiency, time_efficiency

__all__ = ["SampleEfficiency", "TimeEfficiency", "sample_efficiency", "time_efficiency"]
