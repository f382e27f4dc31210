"""Read the sources of a scan: folders, git repositories, code hosts and web sites."""
