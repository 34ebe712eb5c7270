"""Lesson 04: exercise 04, weights by name, by cut and by byte. Knows nothing about checks and hints, which lie beside it."""

from kvcourse.checks.exercise import Exercise, Task

EXERCISE = Exercise(
    "04_weights_and_activations",
    (
        Task("4.1", "find by role", "my_k_names", "answer-find", "check-find", points=2),
        Task("4.2", "split c_attn", "my_split", "answer-split", "check-split", points=2),
        Task("4.3", "K by hand", "my_keys", "answer-keys", "check-keys", points=3),
        Task("4.4", "read a weights file", "my_read", "answer-read", "check-read", points=3),
    ),
    preamble="import json\n\nimport torch\n",
)
