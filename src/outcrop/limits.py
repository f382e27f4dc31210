"""The limits of what outsiders may cost: a source, clients, accounts, people who sign in.

docs/limits.md lists them with their settings.
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

# In each process of the API and the portal, requests of one account that run at once. Others wait so long.
ACCOUNT_REQUESTS = 4
ACCOUNT_WAIT_SECONDS = 5.0

# Reports that one process of the API receives at once; of each, the pace, the seconds that it may be behind
# that pace, and the seconds in all.
UPLOADS = 64
UPLOAD_BYTES_PER_SECOND = 1_000
UPLOAD_LATE_SECONDS = 15.0
UPLOAD_SECONDS = 900.0

# Bytes of the data segment of one git process.
READ_MEMORY = 700 << 20  # to read objects


@dataclass(frozen=True, slots=True)
class SlowDown:
    """How failed sign-ins slow down: the first `free` ones not, then a pause that doubles up to `longest`."""

    free: int  # failures within SIGN_IN_WINDOW
    longest: float  # seconds

    def pause(self, failures: int) -> float:
        """Return the seconds between the last of so many failures and the next attempt."""
        return 0.0 if failures < self.free else min(2.0 ** min(failures - self.free + 1, 30), self.longest)


SIGN_IN_WINDOW = 900.0  # seconds for which a failed sign-in counts
SIGN_IN_BROWSER = SlowDown(free=5, longest=60.0)  # of a browser that the member has signed in with before
SIGN_IN_NETWORK_AND_MEMBER = SlowDown(free=5, longest=60.0)  # of other browsers, from one network
SIGN_IN_MEMBER = SlowDown(free=30, longest=4.0)  # of other browsers, from all networks
SIGN_IN_NETWORK = SlowDown(free=30, longest=10.0)  # of other browsers, for all members
SIGN_IN_STEP = 0.25  # seconds: a wrong sign-in is answered after a multiple of them


@dataclass(frozen=True, slots=True)
class PasswordLimits:
    """The limits of the passwords that wait to be hashed in one process."""

    threads: int = 2  # that hash; each hash takes 64 MiB and a core
    waiting: int = 16  # passwords of browsers that signed in before; as many of all others
    waiting_per_key: int = 3  # passwords of one network, and for one member, that wait or are hashed
    seconds: float = 3.0  # until a password that waits is refused


PASSWORD_LIMITS = PasswordLimits()
