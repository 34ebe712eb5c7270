"""Every lesson: the public names, each imported when it is first used. Knows nothing about how any of them works.

`import kvcourse` costs milliseconds: PyTorch is loaded by the first name that needs it.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kvcourse.course import LESSONS

if TYPE_CHECKING:  # what editors and type checkers see; __getattr__ below serves the same names
    from kvcourse.attention import attend, causal_mask
    from kvcourse.caches.block_pool import BlockPool
    from kvcourse.caches.growing import GrowingCache
    from kvcourse.caches.make import make_cache
    from kvcourse.caches.paged import PagedCache, PagedPool
    from kvcourse.caches.preallocated import PreallocatedCache
    from kvcourse.caches.quantized import QuantizedCache
    from kvcourse.caches.sliding import SlidingCache
    from kvcourse.checkpoints import load_model, save_model
    from kvcourse.config import GPTConfig, LlamaConfig, kv_bytes_per_token
    from kvcourse.context.agent import run_agent, scripted
    from kvcourse.context.policies import CompactNearLimit, CropOldest, Externalise, ReplayAll, Summarise
    from kvcourse.errors import KVCourseError
    from kvcourse.fetch import fetch
    from kvcourse.generate import decode_step, generate, prefill, stream
    from kvcourse.ledger import Ledger, Prices
    from kvcourse.meter import Cost, Meter, timed
    from kvcourse.models.gpt import GPT
    from kvcourse.models.llama import Llama
    from kvcourse.prefix.cache import BlockPrefixCache, RadixPrefixCache
    from kvcourse.prompts.explain import explain
    from kvcourse.prompts.layout import lint_requests
    from kvcourse.providers.rules import rules_of
    from kvcourse.sampling import Sampler, greedy
    from kvcourse.sessions.session import Session
    from kvcourse.sessions.store import SessionStore
    from kvcourse.tokenizers import BPETokenizer, CharTokenizer, ChatTemplate, WordTokenizer
    from kvcourse.trace import trace

__version__ = "0.1.0"

_HOME = {
    "kvcourse.attention": ("attend", "causal_mask"),
    "kvcourse.caches.block_pool": ("BlockPool",),
    "kvcourse.caches.growing": ("GrowingCache",),
    "kvcourse.caches.make": ("make_cache",),
    "kvcourse.caches.paged": ("PagedCache", "PagedPool"),
    "kvcourse.caches.preallocated": ("PreallocatedCache",),
    "kvcourse.caches.quantized": ("QuantizedCache",),
    "kvcourse.caches.sliding": ("SlidingCache",),
    "kvcourse.checkpoints": ("load_model", "save_model"),
    "kvcourse.config": ("GPTConfig", "LlamaConfig", "kv_bytes_per_token"),
    "kvcourse.context.agent": ("run_agent", "scripted"),
    "kvcourse.context.policies": ("CompactNearLimit", "CropOldest", "Externalise", "ReplayAll", "Summarise"),
    "kvcourse.errors": ("KVCourseError",),
    "kvcourse.generate": ("decode_step", "prefill", "stream"),
    "kvcourse.ledger": ("Ledger", "Prices"),
    "kvcourse.meter": ("Cost", "Meter", "timed"),
    "kvcourse.models.gpt": ("GPT",),
    "kvcourse.models.llama": ("Llama",),
    "kvcourse.prefix.cache": ("BlockPrefixCache", "RadixPrefixCache"),
    "kvcourse.prompts.explain": ("explain",),
    "kvcourse.prompts.layout": ("lint_requests",),
    "kvcourse.providers.rules": ("rules_of",),
    "kvcourse.sampling": ("Sampler", "greedy"),
    "kvcourse.sessions.session": ("Session",),
    "kvcourse.sessions.store": ("SessionStore",),
    "kvcourse.tokenizers": ("BPETokenizer", "CharTokenizer", "ChatTemplate", "WordTokenizer"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [  # noqa: RUF022 (grouped as a reader meets them)
    "LESSONS", "__version__",
    "GPTConfig", "LlamaConfig", "kv_bytes_per_token", "KVCourseError",
    "Cost", "Meter", "timed", "attend", "causal_mask",
    "GPT", "Llama", "load_model", "save_model",
    "CharTokenizer", "WordTokenizer", "BPETokenizer", "ChatTemplate",
    "GrowingCache", "PreallocatedCache", "SlidingCache", "QuantizedCache",
    "BlockPool", "PagedPool", "PagedCache", "make_cache",
    "Sampler", "greedy", "prefill", "decode_step", "generate", "stream", "trace", "fetch",
    "RadixPrefixCache", "BlockPrefixCache", "explain", "Session", "SessionStore",
    "Ledger", "Prices", "scripted", "run_agent", "ReplayAll", "CropOldest", "Summarise", "Externalise", "CompactNearLimit",
    "rules_of", "lint_requests",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'kvcourse' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value  # asked for once
    return value


class _Package(ModuleType):
    """Three functions are named like the module they are in. Importing such a module would put it in the function's place:
    these properties keep `from kvcourse import generate` a function, whatever was imported before."""


def _keep_function(name: str) -> property:
    def get(package: ModuleType) -> Any:
        return getattr(import_module(f"kvcourse.{name}"), name)

    def set_module(package: ModuleType, module: ModuleType) -> None:
        """The import system sets a submodule as an attribute here; it is found in sys.modules all the same."""

    return property(get, set_module)


for _name in ("generate", "trace", "fetch"):
    setattr(_Package, _name, _keep_function(_name))
sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
