"""The claims of tests/session_helpers.py reject each broken session, file or store, and each claim is needed."""

import pytest
from mutants.sessions.faulty_sessions import FAULTS
from session_helpers import CLAIMS

BY_NAME = {claim.__name__.replace("_", " "): claim for claim in CLAIMS}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_broken_session_is_caught_by_the_claim_it_breaks(fault, monkeypatch, tmp_path):
    fault(monkeypatch)
    with pytest.raises((Exception, pytest.fail.Exception)):  # what is raised depends on the fault: that this claim fails counts
        BY_NAME[fault.caught_by](tmp_path)


@pytest.mark.parametrize("claim", CLAIMS, ids=list(BY_NAME))
def test_what_is_not_broken_keeps_every_claim(claim, tmp_path):
    claim(tmp_path)


def test_every_claim_catches_some_fault():
    assert {fault.caught_by for fault in FAULTS} == set(BY_NAME)
    assert len(FAULTS) >= 8
