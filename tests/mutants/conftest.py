"""Tiny models only here: what makes them fast holds for every test of this folder."""

import pytest
from helpers import small_models as _small_models


@pytest.fixture(autouse=True)
def small_models(_small_models):
    """For every test of this folder."""
