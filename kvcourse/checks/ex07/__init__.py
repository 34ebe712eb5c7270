"""Lesson 07: exercise 07, a cache that moves nothing. Knows nothing about checks and hints, which lie beside it."""

from kvcourse.checks.exercise import Exercise, Task

EXERCISE = Exercise(
    "07_fast_cache",
    (
        Task("7.1", "write into slots", "my_write", "answer-write", "check-write", points=4),
        Task("7.2", "truncate", "my_truncate", "answer-truncate", "check-truncate", points=2),
        Task("7.3", "bytes of a cache", "my_nbytes", "answer-nbytes", "check-nbytes", points=2),
        Task("7.4", "judge the guesses", "my_verify", "answer-verify", "check-verify", points=2),
    ),
)
