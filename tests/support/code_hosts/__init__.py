"""Stand-ins of code hosts on loopback: each follows the documented API of its host, and serves git."""
