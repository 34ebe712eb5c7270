"""Lesson 07: a module without ceremony. Knows nothing about what its children compute.

PyTorch looks for eight kinds of hooks, in two Python functions, whenever a module is called, and finds a child in a table
of its own after an ordinary look-up has failed. A decode step of twelve blocks does each a hundred times, between products
of a tenth of a millisecond, and that was 3 % of it.
"""

from typing import Any

from torch import nn


class Part(nn.Module):
    """An nn.Module whose call goes straight to `forward`, unless hooks are registered on it, and whose children are
    ordinary attributes as well. Replace a child by assignment, not by writing to `_modules`.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._forward_hooks or self._forward_pre_hooks:
            return super().__call__(*args, **kwargs)
        return self.forward(*args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)  # registers a module, and takes what had this name out of __dict__
        if isinstance(value, nn.Module):
            self.__dict__[name] = value

    def __delattr__(self, name: str) -> None:
        if name in self._modules:
            self.__dict__.pop(name, None)
        super().__delattr__(name)
