"""Version 2 of the API: routes with a body, or for many findings at once."""
