"""Work in several threads at once, from which no fault and no deadlock gets lost."""

import faulthandler
import sys
import threading

LONGEST_WAIT_S = 300


def in_threads(n, work):
    """work(thread) in n threads at once. Whatever one of them raises is raised here; one that never ends is a deadlock."""
    faults, start = [], threading.Barrier(n)

    def run(number):
        try:
            start.wait(LONGEST_WAIT_S)
            work(number)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONGEST_WAIT_S)
    if any(thread.is_alive() for thread in threads):
        faulthandler.dump_traceback(sys.stderr)
        raise AssertionError("threads wait for each other")
    if faults:
        raise faults[0]
