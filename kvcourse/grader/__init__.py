"""Every lesson: grading. `check` runs answers in our notebook, `grade` runs them sealed. Knows nothing about any exercise.

Reading order: submission (what was handed in), merge and nbval_run (for learners), then sealed, judge, remote, wire, worker
and sandbox (for the score), batch and report (for a class).
"""
