"""Lesson 14: every equality that the course rests on, proved again by name, and the same proofs for a cache of your own.

certificate()                    # all of them, in seconds, on small models
certificate(model=smollm2)       # those about caches on that model, too
prove(make_cache)                # make_cache(model, capacity) -> your cache, empty
"""

from kvcourse.certificate.bed import Bed
from kvcourse.certificate.bench import Bench, NotProved
from kvcourse.certificate.entries import Certificate, Proof, Result
from kvcourse.certificate.running import PROOFS, certificate, prove

__all__ = ["PROOFS", "Bed", "Bench", "Certificate", "NotProved", "Proof", "Result", "certificate", "prove"]
