"""The claims of tests/prefix_helpers.py reject each broken prefix cache, and each claim is needed."""

import pytest
from helpers import small_models as small_models
from mutants.prefix.faulty_prefix import FAULTS, Fault, broken
from prefix_helpers import CLAIMS, KINDS, maker

pytestmark = pytest.mark.usefixtures("small_models")
BY_NAME = {claim.__name__.replace("_", " "): claim for claim in CLAIMS}
PAIRS = [(fault, kind) for fault in FAULTS for kind in fault.only]


@pytest.mark.parametrize(("fault", "kind"), PAIRS, ids=[f"{fault.__name__}-{kind.__name__}" for fault, kind in PAIRS])
def test_a_broken_prefix_cache_is_caught_by_the_claim_it_breaks(fault, kind):
    make = maker(broken(fault, kind))
    make()
    with pytest.raises(fault.fails_with):
        BY_NAME[fault.caught_by](make)


@pytest.mark.parametrize("kind", KINDS)
def test_a_prefix_cache_that_is_only_renamed_is_not_caught(kind):
    class Nothing(Fault):
        class index:
            pass

        class store:
            pass

    for claim in CLAIMS:
        claim(maker(broken(Nothing, KINDS[kind])))


def test_there_is_a_fault_for_every_claim_but_those_about_whole_generations():
    assert set(BY_NAME) - {fault.caught_by for fault in FAULTS} == {
        "cached tokens are those that were not computed",
        "logits after a load are those of one pass",
    }
    assert len(FAULTS) >= 10
