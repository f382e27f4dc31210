"""The numbers of all advisory locks. Every process of a database must use the same ones."""

from enum import IntEnum


class AdvisoryLock(IntEnum):
    """The first key of each advisory lock."""

    MIGRATION = 7_264_001  # one process changes the schema
    FOLD_ROLLUPS = 7_264_002  # one process adds the changes of counts to the rollups
    KEYRING = 7_264_003  # one process changes the keyring
    RECORDING = 7_264_004  # with an account's id: one transaction of the account records findings
    REVALIDATION = 7_264_005  # one worker starts the daily validations
    SIGN_IN_NETWORK = 7_264_006  # with a hash: one sign-in of a network is counted at a time
    SIGN_IN_EMAIL = 7_264_007  # with a hash: one sign-in of an address is counted at a time
    UPDATING = 7_264_008  # with a time: the transaction that holds it changes findings since then; shared
    INCIDENTS = 7_264_012  # with an account's id: one transaction writes several incidents of the account
    IMPORT_KEY = 7_264_011  # with a hash: one import with an idempotency key is queued at a time
    PUSHES = 7_264_012  # with a hash: the pushes to one repository are stored or taken, one after the other
