"""Every lesson: what a graded answer may use, with units. Knows nothing about how the limits are held; imports nothing.

Also read inside the sandbox, so it stays a file of its own.
"""

# One task of one submission.
TASK_WALL_S = 20.0  # from the first call to the last, callbacks included
TASK_CPU_S = 10  # processor time of the worker
LOAD_WALL_S = 30.0  # reading in the learner's cells, before any call
STATEMENT_CPU_S = 2.0  # processor time of one statement outside a function, while they are read in
STATEMENT_WALL_S = 10.0  # the same statement, waiting included
LAST_WORDS_S = 2.0  # for a call to end after a function of ours found a fault in it

# What is read in.
CELL_BYTES = 256 << 10  # the source of one cell, as it is sent
CELLS_BYTES = 1 << 20  # the sources of a learner's other cells together

# One worker.
MEMORY_BYTES = 1 << 30  # of all its processes together, beyond what torch itself takes
ADDRESS_SPACE_BYTES = 2 << 30  # of each process, beyond the same: mapped, not used
FILE_BYTES = 16 << 20  # largest file it can write
TMP_BYTES = 64 << 20  # its /tmp, in memory, gone with it
OPEN_FILES = 64
PROCESSES = 24  # threads count too
MEMORY_CHECK_S = 0.05
PARENT_CHECK_S = 0.5  # how often a judge looks whether whoever asked it is still there

# What it says to the judge.
FRAME_BYTES = 64 << 20  # tensors of one message
HEADER_BYTES = 4 << 20  # everything else of one message
REPLY_BYTES = 4 << 20  # tensors of one result, to be compared: a property's inputs are some kB
DEPTH = 32  # lists in lists
NODES = 200_000  # values in one message
AXES = 16
AXIS = 1 << 31
INTEGER_BITS = 256
CALLBACKS = 20_000  # calls of our functions in one task
TEXT_CHARACTERS = 200  # of an exception's text that are shown

# Everyone's patience.
START_S = 120.0  # until the judge, or the sandbox, has imported torch; a cold disk is slow
END_S = 5.0  # until a killed worker is gone
JUDGE_S = 2 * LOAD_WALL_S + TASK_WALL_S + 30.0  # until the parent gives up on a judge
JUDGE_MEMORY_BYTES = 8 << 30  # of the judge, beyond what it has at the start: functions of ours run there
