"""Lesson 10: names for prefixes that no two different ones share. Knows nothing about tensors, trees or eviction.

A cached row is right only for the same tokens before it, the same weights, the same dtype, and, so that one tenant never
learns what another has asked, the same namespace. All of that goes into the key, each field with its type and its length, so
that no two lists of fields run together into one: ("a", "bc") is not ("ab", "c"), and None is not "".

Keys are the same in every process. Python's own hash() is not: it is salted for strings, and collides on purpose never but by
design easily (hash(-1) == hash(-2)).
"""

import hashlib
from array import array
from collections.abc import Callable, Iterator, Sequence

from kvcourse.errors import InputError

DIGEST_BYTES = 16
Digest = Callable[[bytes], bytes]


def digest_of(data: bytes) -> bytes:
    """16 bytes that nobody finds twice by accident, nor cheaply on purpose. Source: BLAKE2, RFC 7693."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def token_bytes(tokens: Sequence[int]) -> bytes:
    """Eight bytes a token, so that 1, 23 is not 12, 3."""
    return array("q", tokens).tobytes()


def encoded(value: object) -> bytes:
    """A namespace as bytes: type, length, content. Takes None, bool, int, str, bytes, and tuples of these.

    Raises: InputError for anything else, whose equality Python may define in its own way.
    """
    match value:
        case None:
            kind, body = b"n", b""
        case bool():
            kind, body = b"b", bytes([value])
        case int():
            kind, body = b"i", str(value).encode()
        case str():
            kind, body = b"s", value.encode("utf-8", "surrogatepass")
        case bytes():
            kind, body = b"y", value
        case tuple():
            kind, body = b"t", b"".join(encoded(part) for part in value)
        case _:
            raise InputError(
                "A namespace is a plain value.",
                expected="None, a bool, int, str or bytes, or a tuple of these",
                got=type(value).__name__,
                todo="Pass the tenant's name, or a tuple such as (tenant, tool).",
            )
    return kind + len(body).to_bytes(8, "little") + body


def root_key(fingerprint: str, dtype: str, namespace: object) -> bytes:
    """What every key under one model, dtype and namespace starts from."""
    return digest_of(encoded((fingerprint, dtype, namespace)))


def chained(before: bytes, tokens: Sequence[int], digest: Digest = digest_of) -> bytes:
    """The key of a block: it names the block's tokens and, through the key before it, everything in front of them."""
    return digest(before + token_bytes(tokens))


def running(before: bytes, tokens: Sequence[int]) -> Iterator[bytes]:
    """digest_of(before + token_bytes(tokens[:n])) for n = 1, 2, …, each at the cost of one token."""
    state = hashlib.blake2b(before, digest_size=DIGEST_BYTES)
    for token in tokens:
        state.update(token_bytes([token]))
        yield state.digest()
