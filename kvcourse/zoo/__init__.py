"""Lesson 14: broken caches, as real systems shipped them, and what shows which is which. Knows nothing about exercises."""

from kvcourse.zoo.admitted import ward
from kvcourse.zoo.charts import Chart, Observation, symptoms
from kvcourse.zoo.specimen import Specimen
from kvcourse.zoo.specimens import HEALTHY, SPECIMENS

__all__ = ["HEALTHY", "SPECIMENS", "Chart", "Observation", "Specimen", "symptoms", "ward"]
