"""Lesson 04: where named activations leave a model. Knows nothing about models or about what is done with a tensor.

A model says `probe(layer, "attn.q", q)`. Nobody listens, as a rule, and the call costs less than a microsecond; `trace`
listens.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor

Listener = Callable[[int | None, str, Tensor], None]

_listener: ContextVar[Listener | None] = ContextVar("probe_listener", default=None)


def probe(layer: int | None, name: str, tensor: Tensor) -> None:
    """Show `tensor` to whoever listens. `layer`: the block it belongs to, None for the parts outside the blocks."""
    listener = _listener.get()
    if listener is not None:
        listener(layer, name, tensor)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Send everything that is probed inside the `with` block, in this thread, to `listener`."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
