"""Open a listening socket, or say in one line why that fails."""

import asyncio
import errno
import socket

from outcrop.domain.errors import OperatorError
from outcrop.lazy_logger import get_logger

BIND_SECONDS = 15.0  # children of a killed service may listen for 10 s after its death
_BIND_INTERVAL = 0.2

log = get_logger()


async def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise OperatorError if the address is not available.

    An address that is in use may belong to a service that was just killed: retry for BIND_SECONDS.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    loop = asyncio.get_running_loop()
    deadline, is_logged = loop.time() + BIND_SECONDS, False
    while True:
        try:
            sock = socket.create_server((host, port), family=family, backlog=1024)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or loop.time() > deadline:
                raise OperatorError(
                    f"cannot listen on {host} port {port}: {error.strerror or error}"
                ) from None
        else:
            sock.setblocking(False)
            return sock
        if not is_logged:
            log.warning("port_in_use", host=host, port=port, seconds=BIND_SECONDS)
            is_logged = True
        await asyncio.sleep(_BIND_INTERVAL)
