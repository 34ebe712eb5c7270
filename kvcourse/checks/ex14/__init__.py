"""Lesson 14: exercise 14, name faults, and write the tests that find them. Knows nothing about checks and hints."""

from kvcourse.checks.exercise import Exercise, Task

EXERCISE = Exercise(
    "14_capstone",
    (
        Task("14.1", "five diagnoses", "my_diagnosis", "answer-diagnosis", "check-diagnosis", points=5),
        Task("14.2", "a test for logits", "my_equal", "answer-equal", "check-equal", points=4),
        Task("14.3", "a test for cuts", "my_cut", "answer-cut", "check-cut", points=4),
        Task("14.4", "a test for forks", "my_forks", "answer-forks", "check-forks", points=4),
    ),
)
