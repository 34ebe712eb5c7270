"""Lesson 07: a module without ceremony still does what PyTorch's users expect of a module."""

import copy

import torch
from torch import nn

from kvcourse.models.part import Part


class Pair(Part):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.second = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


def test_forward_hooks_are_called():
    pair, seen = Pair(), []
    pair.register_forward_pre_hook(lambda module, args: seen.append("before"))
    pair.register_forward_hook(lambda module, args, out: seen.append("after"))
    pair(torch.ones(1, 2))
    assert seen == ["before", "after"]


def test_a_replaced_child_is_the_one_that_is_used():
    pair = Pair()
    pair.second = nn.Identity()
    assert torch.equal(pair(torch.ones(1, 2)), pair.first(torch.ones(1, 2)))
    assert "second.weight" not in pair.state_dict()


def test_a_deleted_child_is_gone():
    pair = Pair()
    del pair.second
    assert not hasattr(pair, "second")
    assert list(pair.state_dict()) == ["first.weight", "first.bias"]


def test_a_deep_copy_uses_its_own_children():
    pair = Pair()
    other = copy.deepcopy(pair)
    with torch.no_grad():
        other.first.weight.add_(1)
    assert other.first is other._modules["first"]
    assert not torch.equal(pair(torch.ones(1, 2)), other(torch.ones(1, 2)))
