"""Lesson 10: exercise 10, work reused between requests. Knows nothing about checks and hints, which lie beside it."""

from kvcourse.checks.exercise import Exercise, Task

EXERCISE = Exercise(
    "10_prefix_cache",
    (
        Task("10.1", "longest match", "my_match", "answer-match", "check-match", points=2),
        Task("10.2", "hash chain", "my_chain", "answer-chain", "check-chain", points=3),
        Task("10.3", "look up and compare", "my_lookup", "answer-lookup", "check-lookup", points=3),
        Task("10.4", "eviction", "my_evict", "answer-evict", "check-evict", points=4),
    ),
)
