"""The shapes in public signatures are checked in this very test run."""

import jaxtyping
import pytest
import torch

from kvcourse.attention import attend
from kvcourse.sampling import greedy


def test_a_wrong_rank_is_rejected():
    with pytest.raises(jaxtyping.TypeCheckError):
        greedy(torch.zeros(2, 3))


def test_shapes_that_do_not_fit_each_other_are_rejected():
    q, k = torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 5)  # head sizes differ
    with pytest.raises(jaxtyping.TypeCheckError):
        attend(q, k, k, None)


def test_a_wrong_dtype_is_rejected():
    with pytest.raises(jaxtyping.TypeCheckError):
        greedy(torch.zeros(3, dtype=torch.int64))


def test_right_shapes_pass():
    assert greedy(torch.tensor([0.0, 2.0, 1.0])) == 1
