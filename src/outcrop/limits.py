"""The limits of what outsiders may cost: sources, clients, accounts, people who sign in, other hosts.

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
IMPORT_RECORD_BYTES = 4 * 1024 * 1024  # of one record of a report
IMPORT_NESTING = 200  # levels of JSON in a report
IMPORT_FIELD_NESTING = 32  # levels of JSON in one field that is stored
SARIF_WAITING_BYTES = 32 << 20  # of results of a SARIF run that wait for the name of its repository
IMPORT_CONTEXT_LENGTH = 16_384  # characters around a reported value that are searched

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
HOOK_ESCAPES = 3 * HOOK_VALUES  # escaped characters in a body of a push hook that is parsed
PUSH_BRANCHES = 20  # branches that are kept of a push
PUSH_TEXT_LENGTH = 300  # characters of a name in a push
PUSH_ADDRESS_LENGTH = 2_000  # characters of an address in a push

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
EMAIL_LENGTH = 254  # characters of an e-mail address
NOTE_LENGTH = 500  # characters of a note
COMMENT_LENGTH = 2_000  # characters of a comment on an incident
WEBHOOK_URL_LENGTH = 2000  # characters of the address of a webhook
REPEATED_DELIVERIES = 1_000  # deliveries that are sent again at once
CODE_LENGTH = 100  # characters that are read of what a person types as a code
SUPPRESSION_PATTERN_LENGTH = 300  # characters of a pattern of a suppression rule
SUPPRESSION_REASON_LENGTH = 500  # characters of the reason of a suppression rule
SUPPRESSION_RULES = 200  # suppression rules of one account
VIEW_NAME_LENGTH = 60  # characters of the name of a saved view
VIEW_QUERY_LENGTH = 2_000  # characters of the filters of a saved view
VIEWS = 100  # saved views of one account
AGENT_LENGTH = 300  # characters that are stored of the name of a browser
CLIENT_ADDRESS_LENGTH = 64  # characters that are stored of the address of a client
ASSIGNEE_LENGTH = 320  # characters of the address of an assignee
QUERY_LENGTH = 1000  # characters of the search parameter `q`
QUERY_TERMS = 16  # words of the search parameter `q`
NUMBER_DIGITS = 4_300  # digits of a number in a query or a body
BULK_IDS = 500  # ids of one bulk call
BULK_MATCHES = 1_000  # findings that the filter of one bulk call matches
BULK_BODY_BYTES = 256 * 1024  # of the body of a bulk call
BULK_BODY_SECONDS = 10.0  # seconds until that body is complete
BULK_SECONDS = 60.0  # seconds for the work of a bulk call
INCIDENT_SECONDS = 60.0  # seconds for the triage of all places of an incident, and for its undo
MENTIONS = 50  # members that one comment mentions
ASSIGNMENT_RULES = 100  # assignment rules of one account
ASSIGNMENT_PATTERN_LENGTH = 300  # characters of a pattern of an assignment rule
IDEMPOTENCY_KEY_LENGTH = 128  # characters of an idempotency key
IMPORT_REPO_LENGTH = 2_000  # characters of the parameter `repo` of an import
METRICS_HEAD_SECONDS = 5.0  # seconds for the head of a request to `/metrics`
METRICS_SEND_SECONDS = 10.0  # seconds in which the client reads the response
METRICS_HEAD_BYTES = 16 << 10  # of that head
METRICS_CONNECTIONS = 32  # connections to `/metrics` at once
TRACE_FLUSH_SECONDS = 2.0  # seconds in which a process that ends sends its last traces

# More limits of a source.
GIT_SECONDS = 3_600.0  # seconds for one git command that connects
GIT_OUTPUT_BYTES = 256 << 20  # of the output of one git command
BLOB_PATHS = 1_000  # paths of one blob in a scan of a whole history
EXCERPT_FILE_BYTES = 32 << 20  # of a file whose lines are stored
CHECKED_FILE_BYTES = 256 << 20  # of a file that is searched for a known credential
RUN_GAPS = 1_000  # gaps that a run lists; one more counts the rest
SOURCE_ATTEMPTS = 3  # attempts to scan a source whose worker dies
FORMER_ADDRESSES = 5  # addresses in reports for which one scan asks the host whether they are the repository
AUTHOR_LENGTH = 512  # characters that are stored of an author
FINDING_LINES = 100  # lines of one finding that are stored
GITIGNORE_BYTES = 1 << 20  # of a file `.gitignore`
TREE_LIST_BYTES = 16 << 20  # of the list of the files of one commit
LARGE_COMMIT_BYTES = 1 << 20  # that are read of a commit or tag of more than 1 MiB
GIT_RESTARTS = 1_000  # starts of git that damaged objects of one batch may cost
DELTA_CHAIN_LENGTH = 4_096  # deltas of one chain
SYMBOLIC_REFS = 5  # symbolic refs that name each other
ALTERNATES_DEPTH = 5  # object folders that name each other
TAG_DEPTH = 8  # tags of tags that are read one by one
CHECKED_TIPS = 1_000  # tips whose objects are checked
CHECKED_COMMITS = 1_000  # newest commits that a continued scan checks for missing objects


@dataclass(frozen=True, slots=True)
class PackLimits:
    """How much a PackReader opens and holds in memory."""

    open_packs: int = 64  # each has two open files
    delta_bytes: int = 32 << 20  # of all deltas of a chain together
    cached_bytes: int = 4 << 20  # of the objects of the last delta chain


PACK_LIMITS = PackLimits()


# What is read of packed files.
ZSTD_WINDOW_BYTES = 128 << 20  # of memory that zstd data may ask for
BUNDLE_BYTES = 256 << 20  # of the unpacked objects of a git bundle
BUNDLE_OBJECTS = 200_000  # objects of a git bundle
SQLITE_TABLES = 10_000  # tables of a SQLite database
PYC_NESTING = 1_000  # levels of constants in a compiled Python file
JSON_VIEW_BYTES = 64 << 20  # of a notebook or HAR file whose values are decoded
ARCHIVE_MEMBER_BYTES = 128 << 20  # of one unpacked file
ARCHIVE_BYTES = 512 << 20  # of all unpacked files of one archive
ARCHIVE_MEMBERS = 100_000  # files of one archive
ARCHIVE_SECONDS = 60.0  # seconds for one archive
ARCHIVE_DEPTH = 6  # archives inside each other
BASE64_ARCHIVE_LENGTH = 8 << 20  # characters of an archive that a text contains as Base64
BASE64_ARCHIVE_EXPANSION = 100  # unpacked bytes for each byte of such an archive
LZMA_MEMORY = 256 << 20  # of memory that LZMA data may ask for
BUNDLE_HEADER_BYTES = 16 << 20  # of the refs of a git bundle
SQLITE_STATEMENT_LENGTH = 100_000  # characters of the statement that has created a table
UTF16_STRINGS_BYTES = 4 << 20  # of a file in which UTF-16 texts are searched for

# What is read of a site.
PAGE_LINKS = 20_000  # links of one document
SCRIPT_LINKS = 5_000  # links of one script
URL_LENGTH = 4_096  # characters of a URL that is followed
SITEMAPS = 20  # sitemaps of one site
ROBOTS_BYTES = 512 << 10  # of robots.txt
SITE_REDIRECTS = 10  # redirects of one request to a site
WAITING_PAGES = 10  # URLs that wait, for each page that a target may have
PAGE_TAGS = 2_000_000  # tags of one document
NEARBY_SCRIPTS = 20  # scripts of a page whose folders may have chunks
PAGE_JSON_VALUES = 200_000  # values of JSON in a document that are searched for links
CRAWL_DELAY_SECONDS = 10.0  # seconds between two requests that robots.txt may ask for
SITE_RETRY_SECONDS = 60.0  # seconds that a site may ask to wait before a retry
SCRIPT_MATCHES = 20_000  # matches of one pattern in one script
SOURCE_MAP_REFERENCES = 16  # references to a source map that are tried in one script
SOURCE_MAP_SECTIONS = 10_000  # sections of a source map
GIT_FOLDER_METADATA_BYTES = 16 << 20  # of one ref, reflog or index file of an open `.git`
GIT_FOLDER_REQUEST_SECONDS = 120.0  # seconds for one request to an open `.git`
GIT_FOLDER_WANTED_IDS = 1_000_000  # ids of objects of an open `.git` that are known
GIT_FOLDER_PARSED_BYTES = 16 << 20  # of a commit, tag or tree in a pack of an open `.git`
GIT_FOLDER_PACKED_IDS = 500_000  # ids of packed objects of an open `.git`, and as many that they refer to


@dataclass(frozen=True, slots=True)
class CrawlLimits:
    """The limits of a crawl that a target cannot choose."""

    max_bytes: int = 32 << 20  # of one response
    request_seconds: float = 60.0  # for one response
    seconds: float = 1_800.0  # for the whole crawl


CRAWL_LIMITS = CrawlLimits()


@dataclass(frozen=True, slots=True)
class GitFolderLimits:
    """The limits of one download."""

    objects: int = 50_000  # loose objects
    total_bytes: int = 1 << 30
    file_bytes: int = 128 << 20  # one file, which is held in memory
    seconds: float = 1_800.0
    concurrency: int = 4  # requests at a time


GIT_FOLDER_LIMITS = GitFolderLimits()


@dataclass(frozen=True, slots=True)
class ParserLimits:
    """When a child process parses a text, and what it may cost."""

    own_bytes: int = 256 << 10  # of a text that is parsed without a child
    memory: int = 600 << 20  # bytes of the data segment of a child
    cpu_seconds: int = 30
    files: int = 20_000  # original files of one source map


PARSER_LIMITS = ParserLimits()


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
ACCESS_SECONDS = 3.0  # seconds for the test of what a token can see
REPORT_ANSWER_BYTES = 1 << 20  # of the answer to `outcrop scan --report-to`
HOST_IDLE_PAGES = 3  # pages in a row that repeat only what earlier ones had
HOST_TEXT_LENGTH = 2_000  # characters of a name, a path or a time
HOST_WAITS = 5  # waits for the rate limit of a code host in a row
HOST_WAIT_SECONDS = 900.0  # seconds of a wait whose end the host does not name
SHARED_WAIT_SECONDS = 7_200.0  # seconds for which one response makes other processes wait
UNSEEN_WAIT_SECONDS = 60.0  # seconds of a wait that no run shows
POLL_SECONDS = 60.0  # seconds between two polls, if the host does not ask for more
POLL_LONGEST_SECONDS = 3_600.0  # seconds between two polls that a host may ask for
POLL_RETRY_SECONDS = 300.0  # seconds from a poll that failed to the next one
POLL_PAGES = 3  # pages of events of one poll
PULL_REQUEST_COMMITS = 1_000  # commits of one pull request
PULL_REQUESTS_MARKED = 10  # pull requests that one commit marks
PULL_REQUESTS_LISTED = 1_000  # open pull requests that are compared with a commit
ISSUER_REQUESTS_PER_SECOND = 10.0  # requests to one issuer in a second
VALIDATION_SECONDS = 60.0  # seconds for one credential, including the wait for the rate limit
SERVICES_SECONDS = 8.0  # seconds after the verdict, to learn what a credential opens
AWS_SERVICES_SECONDS = 20.0  # seconds for the same at AWS
KEY_BITS = 8192  # bits of an RSA key that is used
ISSUER_RETRY_SECONDS = 3_600.0  # seconds of a `Retry-After` that are believed
SERVICE_LABELS = 100  # labels of services in one response
SERVICE_LABEL_LENGTH = 80  # characters of such a label
ISSUER_CHECKS = 10  # checks at one issuer at once
ISSUER_CONNECTIONS = 200  # connections to all issuers together
ISSUER_FAILURES = 5  # failures to connect in a row, after which an issuer counts as down
ISSUER_DOWN_SECONDS = 60.0  # seconds after which it is tried again
LOGIN_CONNECT_SECONDS = 8.0  # seconds to connect to a database
LOGIN_QUERY_SECONDS = 3.0  # seconds for the query after a login
LOGIN_FIELD_BYTES = 512  # of one part of a connection string
BSON_NESTING = 12  # levels of a BSON document
MYSQL_LOGIN_PACKETS = 8  # packets of a login to MySQL
MYSQL_GRANT_PACKETS = 100  # packets of the answer to `SHOW GRANTS`
POSTGRES_MESSAGES = 200  # messages of a login to PostgreSQL
MSSQL_TLS_ROUNDS = 20  # rounds of the TLS handshake inside the protocol of SQL Server
