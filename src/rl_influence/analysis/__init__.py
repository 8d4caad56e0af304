"""From curves to answers: sample efficiency, statistics, a study's curves, tables."""

from .sample_efficiency import SampleEfficiency, TimeEfficiency, efficiency_at, sample_efficiency, time_efficiency

__all__ = ["SampleEfficiency", "TimeEfficiency", "efficiency_at", "sample_efficiency", "time_efficiency"]
