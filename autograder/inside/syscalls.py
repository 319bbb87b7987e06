"""System calls that no submission needs, refused by the kernel: those that reach deep into it, or into other processes."""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

#: numbers by machine, as in the kernel's tables
NUMBERS = {
    "x86_64": (0xC000003E, 56, 435, {
        "ptrace": 101, "unshare": 272, "setns": 308, "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161,
        "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "keyctl": 250, "add_key": 248, "request_key": 249,
        "io_uring_setup": 425,
        "process_vm_readv": 310, "process_vm_writev": 311, "open_by_handle_at": 304, "kexec_load": 246, "init_module": 175}),
    "aarch64": (0xC00000B7, 220, 435, {
        "ptrace": 117, "unshare": 97, "setns": 268, "mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51, "bpf": 280,
        "perf_event_open": 241, "userfaultfd": 282, "keyctl": 219, "add_key": 217, "request_key": 218, "io_uring_setup": 425,
        "process_vm_readv": 270, "process_vm_writev": 271, "open_by_handle_at": 265, "kexec_load": 104, "init_module": 105}),
}
CLONE_NEWUSER = 0x10000000
LOAD, EQUAL, BITS, RETURN = 0x20, 0x15, 0x45, 0x06  # of classic BPF; EQUAL and BITS are jumps
ALLOW, KILL = 0x7FFF0000, 0x80000000
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2


def refuse(number: int) -> int:
    """What a filter returns for a call that is to fail with this error."""
    return 0x00050000 | number


def program() -> list[tuple[int, int, int, int]] | None:
    """The filter, as (code, jump if true, jump if false, operand); None for a machine that isn't known here."""
    if platform.machine() not in NUMBERS:
        return None
    machine, clone, clone3, refused = NUMBERS[platform.machine()]
    steps = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, machine), (RETURN, 0, 0, KILL), (LOAD, 0, 0, 0)]
    for number in refused.values():
        steps += [(EQUAL, 0, 1, number), (RETURN, 0, 0, refuse(errno.EPERM))]
    steps += [(EQUAL, 0, 1, clone3), (RETURN, 0, 0, refuse(errno.ENOSYS))]  # then the C library takes `clone`
    steps += [(EQUAL, 0, 3, clone), (LOAD, 0, 0, 16), (BITS, 0, 1, CLONE_NEWUSER), (RETURN, 0, 0, refuse(errno.EPERM))]
    return [*steps, (RETURN, 0, 0, ALLOW)]


def restrict(libc: ctypes.CDLL) -> None:
    """Refuse them from now on, in this process and all that it starts. It must have given up new privileges before."""
    steps = program()
    if steps is None:
        return
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    about = struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code))
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.create_string_buffer(about), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")
