"""What one source may cost (time, memory, disk and work), and how slowly a client may read a response.

docs/limits.md lists these limits with their settings. Other limits are beside the code that they protect.
"""

from dataclasses import dataclass

MEGA = 1_000_000


@dataclass(frozen=True, slots=True)
class SourceLimits:
    """The limits of one source: of the scanning process and all that it starts, such as git."""

    seconds: float = 4 * 3600.0  # until the deadline
    memory: int = 1_400 * MEGA  # bytes of all processes together
    disk: int = 20_000 * MEGA  # bytes of the working folder
    total_disk: int = 60_000 * MEGA  # bytes of the working folders of all sources together
    free_disk: int = 500 * MEGA  # bytes that stay free on the disk of the working folder
    git_memory: int = 1 << 30  # bytes of the data segment of one git process
    diff_memory: int = 768 << 20  # bytes of all git processes that compare commits
    findings: int = 50_000  # that are recorded; the others are counted
    # CPU seconds that are not explained by work: a source that yields nothing new for so long is cut short.
    idle_cpu: float = 60.0
    # What work explains, in CPU seconds. Ordinary repositories need a tenth of this.
    cpu_per_object: float = 0.001  # that was read
    cpu_per_new_megabyte: float = 2.0  # of text that an object has not copied from its delta base
    cpu_per_commit: float = 0.02  # that was compared with its parents
    cpu_per_packed_megabyte: float = 0.5  # of the packs: to index and to list them


SOURCE_LIMITS = SourceLimits()

# A client of the API or the portal that reads its response more slowly, for so long, is disconnected.
CLIENT_SECONDS = 20.0
CLIENT_BYTES_PER_SECOND = 4_000

# Bytes of the data segment of one git process.
READ_MEMORY = 700 << 20  # to read objects
