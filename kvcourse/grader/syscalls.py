"""Every lesson: the calls to the kernel that a graded answer may not make. Knows nothing about graders or answers.

A list of what is refused, not of what is allowed: names of files, memory and processes are held by namespaces and limits
already. This closes what is left of the network, memory that no limit counts, and doors into the kernel that an answer has no
business with. Also mounted in the sandbox, without the package.
"""

import ctypes
import errno
import platform
import struct

# name: its number on x86_64, on aarch64 (None: there is none)
REFUSED: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198),  # no network, and no unix sockets with a name; socketpair stays
    "memfd_create": (319, 279),  # memory that is no process's
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "fanotify_init": (300, 262),
    "syslog": (103, 116),
    "personality": (135, 92),
    "modify_ldt": (154, None),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "quotactl": (179, 60),
    "swapon": (167, 224),
    "reboot": (169, 142),
}
MACHINES = {"x86_64": (0, 0xC000003E, 56, 9), "aarch64": (1, 0xC00000B7, 220, 222)}  # column, kernel's name, clone, mmap
CLONE3 = 435
NEW_NAMESPACES = 0x7E020000  # of clone's flags: user, pid, net, ipc, uts, cgroup, mount
MAP_SHARED = 1  # also set in MAP_SHARED_VALIDATE, not in MAP_PRIVATE
X32 = 0x40000000  # numbers from here on are another way into x86_64

LOAD, AND, JUMP_IF_EQUAL, JUMP_IF_AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06  # classic BPF, linux/filter.h
NUMBER, ARCHITECTURE, FIRST_ARGUMENT, FOURTH_ARGUMENT = 0, 4, 16, 40  # offsets in struct seccomp_data, little-endian
ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2


def program(machine: str) -> bytes:
    """The filter, as an array of struct sock_filter. Raises KeyError for a machine whose numbers are not known here."""
    column, architecture, clone, mmap = MACHINES[machine]
    lines = [
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_IF_EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL),  # 32-bit calls in a 64-bit process
        (LOAD, 0, 0, NUMBER),
        (JUMP_IF_AT_LEAST, 0, 1, X32),
        (RETURN, 0, 0, ERRNO | errno.ENOSYS),
        (JUMP_IF_EQUAL, 0, 1, CLONE3),  # its flags are in memory, where no filter can look; libc then uses clone
        (RETURN, 0, 0, ERRNO | errno.ENOSYS),
    ]
    for number in (numbers[column] for numbers in REFUSED.values()):
        if number is not None:
            lines += [(JUMP_IF_EQUAL, 0, 1, number), (RETURN, 0, 0, ERRNO | errno.EPERM)]
    lines += [
        (JUMP_IF_EQUAL, 0, 5, mmap),  # shared maps, of nothing or of /dev/zero, are memory that no process is seen to hold
        (LOAD, 0, 0, FOURTH_ARGUMENT),
        (AND, 0, 0, MAP_SHARED),
        (JUMP_IF_EQUAL, 0, 1, 0),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, ERRNO | errno.EPERM),
        (JUMP_IF_EQUAL, 1, 0, clone),
        (RETURN, 0, 0, ALLOW),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (AND, 0, 0, NEW_NAMESPACES),
        (JUMP_IF_EQUAL, 0, 1, 0),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, ERRNO | errno.EPERM),
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def refuse(libc: ctypes.CDLL) -> bool:
    """Refuse them from now on, in this process and all it starts. Needs no_new_privs. False where this cannot be done."""
    try:
        code = program(platform.machine())
    except KeyError:
        return False
    buffer = ctypes.create_string_buffer(code, len(code))
    filled = _Program(len(code) // 8, ctypes.addressof(buffer))
    return libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(filled), 0, 0) == 0
