"""Lesson 13: what hosted models keep of a prompt, and what it costs: rules as data, one file a provider."""

from kvcourse.providers.replaying import Logged, Replayed, replay_requests
from kvcourse.providers.rules import Rules, known_providers, rules_of
from kvcourse.providers.usage import UsageCounts, usage_of

__all__ = ["Logged", "Replayed", "Rules", "UsageCounts", "known_providers", "replay_requests", "rules_of", "usage_of"]
