"""Choose the embedded server's settings: memory by the machine, a private socket, no values in the log."""

import os
from contextlib import suppress
from pathlib import Path

MB = 1024 * 1024


def server_settings(socket_folder: Path) -> dict[str, object]:
    """Return PostgreSQL's settings by name; memory sizes depend on `usable_memory`."""
    memory = usable_memory()
    return {
        "listen_addresses": "",
        "port": 5432,
        "unix_socket_directories": socket_folder,
        "unix_socket_permissions": "0700",
        "max_connections": 200,
        "dynamic_shared_memory_type": "mmap",  # containers have only 64 MB of /dev/shm
        "fsync": "on",
        "shared_buffers": f"{min(max(memory // 8 // MB, 128), 1024)}MB",
        "effective_cache_size": f"{max(memory // 2 // MB, 128)}MB",
        "work_mem": "32MB",
        "maintenance_work_mem": "256MB",
        "max_wal_size": "4GB",
        "checkpoint_timeout": "15min",
        "wal_compression": "on",
        # An import writes much WAL. A small commit at the same time should not have to flush all of it.
        "wal_writer_delay": "10ms",
        "random_page_cost": 1.1,
        "autovacuum_naptime": "15s",
        "jit": "off",
        "timezone": "UTC",
        # The log must never contain a value of a statement. Errors quote values (`invalid input syntax …
        # "hunter2"`), and their details quote rows and statements. So neither errors of clients nor details
        # are logged.
        "log_min_messages": "log",
        "log_error_verbosity": "terse",
        "log_min_error_statement": "panic",
        "log_statement": "none",
        "log_duration": "off",
        "log_min_duration_statement": -1,
        "log_min_duration_sample": -1,
        "log_transaction_sample_rate": 0,
        "log_parameter_max_length": 0,
        "log_parameter_max_length_on_error": 0,
        "log_checkpoints": "off",
        "log_connections": "off",
        "log_disconnections": "off",
        "log_destination": "stderr",
        "logging_collector": "off",  # stderr is our log file
        "log_timezone": "UTC",
    }


def usable_memory(
    membership: Path = Path("/proc/self/cgroup"), cgroups: Path = Path("/sys/fs/cgroup")
) -> int:
    """Return the machine's memory in bytes, or the lowest limit of the process's cgroups (version 2 or 1)."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with suppress(OSError):
        for line in membership.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            top, name = (
                (cgroups / "memory", "memory.limit_in_bytes") if controllers else (cgroups, "memory.max")
            )
            inner = Path(path.lstrip("/"))
            for level in (inner, *inner.parents):
                with suppress(OSError, ValueError):  # invisible inside the container, or "max"
                    limits.append(int((top / level / name).read_text()))
    return min(limits)
