"""The program that runs a detached command (`detached.py`), and takes what the command prints.

Its arguments are the folder of the command, and the command. The command prints through pipes, and has no file of the
machine open: it may print without end, also while no runner reads. Of `out`, the begin is kept. When too much of `log`
is unread, the command waits until a runner has read it and has given the disk back what it read.

It is run as a file, by root, with Python's isolated mode: it imports nothing but the standard library.
"""

import os
import select
import subprocess
import sys

MAX_OUT_BYTES = 1 << 20
MAX_LOG_BYTES = 64 << 20
READ_BYTES = 64 << 10
POLL_SECONDS = 0.1
LAST_READS = 32
"""After the end of the command, its pipes have no more than this, unless another process has them open and goes on."""
NOT_FOUND = 127


def main() -> None:
    folder, *command = sys.argv[1:]
    os.chdir(folder)
    replace_file("pid", describe_self())
    replace_file("exit", str(run(command)))


def describe_self() -> str:
    """The pid, when the process started, and since when the machine runs: no other process has the same."""
    with open("/proc/self/stat") as stat, open("/proc/sys/kernel/random/boot_id") as boot:
        start_ticks = stat.read().rpartition(")")[2].split()[19]
        return f"{os.getpid()} {start_ticks} {boot.read().strip()}"


def run(command: list[str]) -> int:
    """The exit code, as a shell has it."""
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
    except OSError:
        return NOT_FOUND
    assert process.stdout is not None and process.stderr is not None
    with open("out", "wb", buffering=0) as out, open("log", "ab", buffering=0) as log:
        pass_on(process, {process.stdout.fileno(): out.fileno()}, {process.stderr.fileno(): log.fileno()})
    code = process.wait()
    return code if code >= 0 else 128 - code


def pass_on(process: "subprocess.Popen[bytes]", out: dict[int, int], log: dict[int, int]) -> None:
    """Until both pipes are closed, or the command has ended and they are empty."""
    last_reads = LAST_READS
    while out or log:
        has_ended = process.poll() is not None
        readable = [*out, *(pipe for pipe in log if has_ended or has_room(log[pipe]))]
        ready, _, _ = select.select(readable, [], [], 0 if has_ended else POLL_SECONDS)
        for pipe in ready:
            data = os.read(pipe, READ_BYTES)
            if not data:
                out.pop(pipe, None)
                log.pop(pipe, None)
            elif pipe in log:
                write(log[pipe], data)
            else:
                write(out[pipe], data[: MAX_OUT_BYTES - os.fstat(out[pipe]).st_size])
        if has_ended:
            last_reads -= 1
            if not ready or not last_reads:
                return


def has_room(log: int) -> bool:
    """What a runner has read takes up no disk."""
    return os.fstat(log).st_blocks * 512 < MAX_LOG_BYTES


def write(file: int, data: bytes) -> None:
    """A full disk loses what is printed, not the command."""
    try:
        while data:
            data = data[os.write(file, data) :]
    except OSError:
        return


def replace_file(name: str, value: str) -> None:
    with open(f"{name}.leader", "w") as file:
        file.write(f"{value}\n")
    os.replace(f"{name}.leader", name)


if __name__ == "__main__":
    main()
