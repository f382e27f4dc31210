"""Code hosts: list their repositories, gists and commits."""
