"""Every lesson: how a worker gives up what it does not need. Knows nothing about answers; runs before any of them is read.

Each step says whether it worked, and the grader's report says so too: there are hosts that allow less than others. Everything
here is plain system calls, because it is also mounted in the sandbox, without the package.
"""

import contextlib
import ctypes
import os
import platform
import resource
import sys

from . import limits, syscalls

NEWNS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x00020000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 0x4000, 1 << 18
PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 4, 24, 36, 38
CAPABILITY_VERSION = 0x20080522
LAST_CAPABILITY = 63
IS_LINUX = sys.platform == "linux"
libc = ctypes.CDLL(None, use_errno=True)


def become(uid: int) -> bool:
    """Root only: be this user, who owns nothing, so that the limit on processes holds (it does not for root). 0: stay."""
    if os.geteuid() != 0 or uid == 0:
        return False
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    if IS_LINUX:
        libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # a change of user took away our own /proc/self
    return True


def adopt_orphans() -> None:
    """A process whose parent ends becomes our child: a worker is one step further down (see `worker.start`)."""
    if IS_LINUX:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def separate(network: bool) -> list[str]:
    """New user, mount, pid and ipc namespaces; the pid one begins with the next fork. What worked, in words."""
    if not IS_LINUX:
        return []
    uid, gid = os.geteuid(), os.getegid()
    if libc.unshare(NEWUSER | NEWNS | NEWPID | NEWIPC | (NEWNET if network else 0)) != 0:
        return []
    with contextlib.suppress(OSError):  # without a map the namespaces are as closed; only files in /tmp cannot be made
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    return ["own processes: it sees and signals no other", *(["no network"] if network else [])]


def hide(own_tmp: bool) -> list[str]:
    """Within a mount namespace: no /proc, and a small /tmp of its own."""
    done = []
    libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None)
    safe = MS_NOSUID | MS_NODEV
    if libc.mount(b"tmpfs", b"/proc", b"tmpfs", safe | MS_NOEXEC | MS_RDONLY, b"size=4k") == 0:
        done.append("no /proc")
    options = f"size={limits.TMP_BYTES},nr_inodes=2000,mode=700".encode()
    if own_tmp and libc.mount(b"tmpfs", b"/tmp", b"tmpfs", safe, options) == 0:
        done.append(f"own /tmp of {limits.TMP_BYTES >> 20} MiB, gone with it")
    return done


def close_all_but(kept: int) -> None:
    """Every other descriptor; what it reads is empty and what it writes is gone, 40 MB as well as nothing."""
    os.set_inheritable(kept, False)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    os.closerange(3, kept)
    os.closerange(kept + 1, 4096)


def _lower(kind: int, value: int) -> bool:
    try:
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
        return True
    except (ValueError, OSError):
        return False


def _mapped_bytes() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 8 << 30  # not Linux


def _counts_processes(own_user: bool) -> bool:
    """Whether the limit counts this worker's processes only. Since Linux 5.14 a user namespace counts for itself."""
    try:
        release = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])
    except ValueError:
        return False
    return IS_LINUX and (own_user or (release >= (5, 14) and os.geteuid() != 0))


def limit(own_user: bool) -> list[str]:
    """Limits that the kernel holds. What worked, in words."""
    done = []
    mapped = _mapped_bytes()  # before anything else: /proc is still there
    if _lower(resource.RLIMIT_CPU, limits.TASK_CPU_S):
        done.append(f"{limits.TASK_CPU_S} s of processor time")
    if _lower(resource.RLIMIT_AS, mapped + limits.ADDRESS_SPACE_BYTES):
        done.append(f"{limits.ADDRESS_SPACE_BYTES >> 30} GiB of address space a process")
    if _lower(resource.RLIMIT_FSIZE, limits.FILE_BYTES):
        done.append(f"files of {limits.FILE_BYTES >> 20} MiB")
    if _counts_processes(own_user) and _lower(resource.RLIMIT_NPROC, limits.PROCESSES):
        done.append(f"{limits.PROCESSES} processes")
    _lower(resource.RLIMIT_NOFILE, limits.OPEN_FILES)
    _lower(resource.RLIMIT_CORE, 0)
    for name in ("RLIMIT_MEMLOCK", "RLIMIT_MSGQUEUE", "RLIMIT_RTPRIO"):
        if hasattr(resource, name):
            _lower(getattr(resource, name), 0)
    return done


def renounce() -> list[str]:
    """No capability, none to be had again, and no system call that an answer has no business with."""
    if not IS_LINUX:
        return []
    done = []
    for capability in range(LAST_CAPABILITY + 1):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    if libc.capset(header, (ctypes.c_uint32 * 6)()) == 0 and libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        done.append("no privileges")
        if syscalls.refuse(libc):
            done.append("system calls filtered")
    return done
