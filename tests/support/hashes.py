"""Password hashes that are made in microseconds."""

from functools import cache

from argon2 import PasswordHasher

PASSWORD = "a long pass phrase"
# The real parameters would take most of the time of a test.
QUICK = {"time_cost": 1, "memory_cost": 8, "parallelism": 1}


@cache
def password_hash() -> str:
    return PasswordHasher(**QUICK).hash(PASSWORD)
