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

# Push hooks: of one body, of the bodies of one hook and of all hooks that one process holds at once, and what
# makes a body too complex to parse. UPLOAD_BYTES_PER_SECOND and UPLOAD_LATE_SECONDS hold for bodies too.
HOOK_BODY_BYTES = 25 * MEGA
HOOK_HELD_BYTES = 2 * HOOK_BODY_BYTES
HOOKS_HELD_BYTES = 8 * HOOK_BODY_BYTES
HOOK_BODY_SECONDS = 60.0
HOOK_VALUES = 1_000_000  # values of a body, which are counted roughly
HOOK_DELIVERIES = 600  # deliveries of one hook in a minute
HOOK_DELIVERY_IDS = 100_000  # ids of deliveries of one hook that are known, for HOOK_DELIVERY_DAYS
HOOK_DELIVERY_DAYS = 7
HOOKS = 100  # of one account

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

# What a request to the API or the portal may have.
FORM_BYTES = 256 << 10  # of one form
FORM_FIELDS = 2_000  # fields of one form
FORM_LINES = 500  # lines of one field
FORM_FINDINGS = 200  # findings in one form
BULK_FINDINGS = 20_000  # findings of one action on all that match
TEXT_LENGTH = 10_000  # characters of any typed text; those of notes and names are lower
TARGET_PATTERN_LENGTH = 500  # characters of a pattern of a target
TARGET_PATTERNS = 100  # patterns of a target to include, and as many to exclude
TARGET_CREDENTIAL_LENGTH = 8_000  # characters of the credential of a target
TARGET_LENGTH = 2_000  # characters of the address of a target
NAME_LENGTH = 100  # characters of the name of a key
REQUEST_HEAD_SECONDS = 10.0  # seconds for the head of a request
REQUEST_SECONDS = 4.5  # seconds for the response to a request

# More limits of a source.
GIT_SECONDS = 3_600.0  # seconds for one git command that connects
GIT_OUTPUT_BYTES = 256 << 20  # of the output of one git command
BLOB_PATHS = 1_000  # paths of one blob in a scan of a whole history
EXCERPT_FILE_BYTES = 32 << 20  # of a file whose lines are stored
CHECKED_FILE_BYTES = 256 << 20  # of a file that is searched for a known credential
RUN_GAPS = 1_000  # gaps that a run lists; one more counts the rest

# What is read of packed files, beside the size, members and seconds that all of them share.
ZSTD_WINDOW_BYTES = 128 << 20  # of memory that zstd data may ask for
BUNDLE_BYTES = 256 << 20  # of the unpacked objects of a git bundle
BUNDLE_OBJECTS = 200_000  # objects of a git bundle
SQLITE_TABLES = 10_000  # tables of a SQLite database
PYC_NESTING = 1_000  # levels of constants in a compiled Python file
JSON_VIEW_BYTES = 64 << 20  # of a notebook or HAR file whose values are decoded

# What is read of a site.
PAGE_LINKS = 20_000  # links of one document
SCRIPT_LINKS = 5_000  # links of one script
URL_LENGTH = 4_096  # characters of a URL that is followed
SITEMAPS = 20  # sitemaps of one site
ROBOTS_BYTES = 512 << 10  # of robots.txt
SITE_REDIRECTS = 10  # redirects of one request to a site

# What is read of other hosts: code hosts, issuers, databases, webhook receivers.
HTTP_REDIRECTS = 10  # redirects of another request
CONNECT_SECONDS = 20.0  # seconds to connect
PROXY_RESPONSE_BYTES = 1 << 16  # of the head of a proxy's response
TCP_BUFFER = 1 << 16  # bytes of a database server that are held unread
HOST_PAGES = 10_000  # pages of one list of a code host
DISCUSSION_TEXTS = 100_000  # issues, requests and comments of one repository that one scan reads
DISCUSSION_CHECKS = 1_000  # texts with findings that one scan asks for again
CHECK_SECONDS = 20.0  # seconds for one check at an issuer
CHECK_BYTES = 1 << 20  # of one response of an issuer
LOGIN_SECONDS = 15.0  # seconds for a login to a database
LOGIN_MESSAGE_BYTES = 1 << 16  # of one message of a login
SCRAM_ITERATIONS = 300_000  # iterations that a database server may ask for
WEBHOOK_RESPONSE_BYTES = 64 * 1024  # read of the response of a webhook receiver
WEBHOOK_LOGGED_BYTES = 2048  # stored of the body of that response
