"""Lesson 06: exercise 06, a KV cache. Knows nothing about checks and hints, which lie beside it."""

from kvcourse.checks.exercise import Exercise, Task

EXERCISE = Exercise(
    "06_kv_cache",
    (
        Task("6.1", "append", "my_append", "answer-append", "check-append", points=3),
        Task("6.2", "mask", "my_mask", "answer-mask", "check-mask", points=3),
        Task("6.3", "positions", "my_positions", "answer-positions", "check-positions", points=1),
        Task("6.4", "decode loop", "my_decode", "answer-decode", "check-decode", points=3),
    ),
)
