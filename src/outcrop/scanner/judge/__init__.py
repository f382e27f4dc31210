"""Whether a value beside a name such as password is a credential: value, name and place, weighed."""
