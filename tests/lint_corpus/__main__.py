"""`python -m tests.lint_corpus`: every log, what was planted and what was named; then precision and recall."""

import sys

from tests.lint_corpus import named, planted, rates

found = [(truth, named(path)) for path, truth in planted().items()]
for (path, truth), (_, said) in zip(planted().items(), found, strict=True):
    print(f"{'ok   ' if truth == said else 'WRONG'} {said:<16} {path.stem}")
precision, recall = rates(found)
faulty = sum(truth != "none" for truth, _ in found)
print(f"{faulty} logs with a fault, {len(found) - faulty} clean: precision {precision:.3f}, recall {recall:.3f}")
sys.exit(any(truth != said for truth, said in found))
