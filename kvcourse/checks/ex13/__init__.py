"""Lesson 13: exercise 13, prompts that hit. Knows nothing about checks and hints, which lie beside it."""

from kvcourse.checks.exercise import Exercise, Task

_COMMON = '''
def common(one, other):
    """How many characters two texts, or tokens two lists, begin with in common."""
    n = min(len(one), len(other))
    return next((i for i in range(n) if one[i] != other[i]), n)
'''  # as the notebook has it

EXERCISE = Exercise(
    "13_cache_friendly_prompts",
    (
        Task("13.1", "the first difference", "my_difference", "answer-difference", "check-difference", points=3),
        Task("13.2", "the layout", "my_layout", "answer-layout", "check-layout", points=4),
        Task("13.3", "what is found", "my_cached", "answer-cached", "check-cached", points=4),
        Task("13.4", "the bill", "my_bill", "answer-bill", "check-bill", points=3),
    ),
    preamble=f"from itertools import permutations\n\nimport torch\n\n{_COMMON}",
)
