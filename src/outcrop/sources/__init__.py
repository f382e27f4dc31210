"""Where we look: folders, git repositories and their history, standard input."""
