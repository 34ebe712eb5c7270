"""Every lesson: `python -m kvcourse`, the same as the command `kvcourse`. Knows nothing else."""

from kvcourse.cli import main

if __name__ == "__main__":
    main()
