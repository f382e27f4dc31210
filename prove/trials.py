"""All trials, in the order in which they run."""

from prove.backups import try_backup
from prove.canaries import try_canaries
from prove.clocks import try_clocks
from prove.database import try_database
from prove.freezes import try_freezes
from prove.histories import try_histories
from prove.hostile import try_hostile
from prove.isolation import try_isolation
from prove.kills import try_kills
from prove.races import try_races
from prove.resources import try_resources
from prove.slow_readers import try_slow_readers
from prove.trial import Trial

TRIALS = (
    Trial("kills", try_kills, weight=10),
    Trial("freezes", try_freezes, weight=5, in_short=False),
    Trial("clocks", try_clocks, in_short=False),
    Trial("resources", try_resources, weight=2, in_short=False),
    Trial("slow-readers", try_slow_readers, in_short=False),
    Trial("database", try_database, weight=3, in_short=False),
    Trial("histories", try_histories, weight=4, in_short=False),
    Trial("backup", try_backup, in_short=False),
    Trial("isolation", try_isolation, in_short=False),
    Trial("canaries", try_canaries, in_short=False),
    Trial("hostile", try_hostile, weight=3, in_short=False),
    Trial("races", try_races, in_short=False),
)
