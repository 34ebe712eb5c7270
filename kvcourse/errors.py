"""Every lesson: the faults this package can name. Knows nothing about models or caches.

Each message says what was expected, what was got, and what to do, in that order:

    raise CacheFull("The cache is full.", expected="at most 64 tokens", got="65",
                    todo="Make it with capacity=65 or more.")
"""


class KVCourseError(Exception):
    """The base of all faults this package raises on purpose. The command line prints one and exits 2."""

    def __init__(self, fault: str, *, expected: object = None, got: object = None, todo: str | None = None) -> None:
        self.fault, self.expected, self.got, self.todo = fault, expected, got, todo
        parts = [fault]
        if expected is not None:
            parts.append(f"Expected {expected}; got {got}.")
        if todo is not None:
            parts.append(todo)
        super().__init__(" ".join(parts))


class InputError(KVCourseError):
    """An argument that cannot be used: an empty prompt, a token id outside the vocabulary, a negative temperature."""


class ConfigError(KVCourseError):
    """A model shape that contradicts itself, or one that this package cannot build."""


class ContextOverflow(KVCourseError):
    """More tokens than the model has positions for."""


class CacheFull(KVCourseError):
    """More tokens than a cache of fixed capacity can hold."""


class CacheMismatch(KVCourseError):
    """A cache used with another model, batch size, dtype or device than the one it is bound to."""


class CacheMisuse(KVCourseError):
    """A step that this cache cannot take: truncate out of range, read rows it does not hold, commit what was not written."""


class BrokenInvariant(KVCourseError):
    """Bookkeeping that contradicts itself: a fault of this package, found by a `check()`."""


class SessionFileError(KVCourseError):
    """A session file that cannot be written, or must not be used: truncated, damaged, foreign, of other weights, or newer."""


class SessionStoreError(KVCourseError):
    """A store of sessions that cannot do what it was asked to: no room, no permission, a broken index."""


class CheckpointError(KVCourseError):
    """A file or folder that does not hold the weights it should: truncated, foreign, wrong names, shapes or dtypes."""


class UnknownName(KVCourseError):
    """A model, cache or lesson that does not exist under that name."""


class NotFetched(KVCourseError):
    """The real model is not on this machine yet."""


class FetchError(KVCourseError):
    """The real model could not be fetched, or what came is not what was asked for."""


class TokenizerError(KVCourseError):
    """Text or ids that a tokenizer cannot turn into the other, or a tokenizer that is missing."""


class SetupError(KVCourseError):
    """Something around the package is missing: the course's folder, JupyterLab, a Python package."""


class SubmissionError(KVCourseError):
    """A notebook that cannot be graded: missing, no notebook, another exercise's, or from a newer version of the course."""
