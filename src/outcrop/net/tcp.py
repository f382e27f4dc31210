"""Connections to other people's servers that do not speak HTTP: the address is checked first, and the checked one is connected to."""

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter

from outcrop.net.guard import Egress, EgressError, resolve

_BUFFER = 1 << 16  # no server makes us hold more than about this


class TcpError(Exception):
    """No connection, or none any more: the reason, in words that name no more than the host."""


async def connect(
    host: str, port: int, egress: Egress, *, seconds: float, tls: ssl.SSLContext | None = None
) -> tuple[StreamReader, StreamWriter]:
    """Connect to a name's checked address. With `tls` everything is encrypted, under the name that was asked for."""
    local = (egress.source_address, 0) if egress.source_address else None
    try:
        async with asyncio.timeout(seconds):
            address, at_port = await asyncio.to_thread(resolve, host, port, egress)
            return await asyncio.open_connection(
                address,
                at_port,
                limit=_BUFFER,
                local_addr=local,
                ssl=tls,
                server_hostname=host if tls else None,
            )
    except EgressError as error:
        raise TcpError(error.message) from None
    except TimeoutError:
        raise TcpError(f"no connection within {seconds:g} seconds") from None
    except ssl.SSLError:
        raise TcpError("its certificate is not trusted, or TLS failed") from None
    except (OSError, ValueError):
        raise TcpError("cannot be connected to") from None


async def encrypt(writer: StreamWriter, host: str, tls: ssl.SSLContext) -> None:
    """Go on under TLS on an open connection, under the name that was asked for; the reader goes on with it."""
    try:
        await writer.start_tls(tls, server_hostname=host)
    except (OSError, ValueError):  # ssl.SSLError is an OSError
        raise TcpError("TLS failed") from None


def unproven_tls() -> ssl.SSLContext:
    """Encrypt to whoever answers, as database drivers do where a server merely offers TLS: most sign their own certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
