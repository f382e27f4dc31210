"""Open TCP connections to servers that do not speak HTTP.

The address is checked first and the checked address is connected to, so a host in a scanned text cannot lead
into the internal network. Time to connect and the read buffer are limited, so a server cannot keep a worker
waiting or fill its memory.
"""

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter

from outcrop.limits import TCP_BUFFER
from outcrop.net.guard import Egress, EgressError, resolve
from outcrop.net.proxy import open_tunnel


class TcpError(Exception):
    """The connection failed. The message is the reason and names at most the host."""


async def connect(
    host: str, port: int, egress: Egress, *, seconds: float, tls: ssl.SSLContext | None = None
) -> tuple[StreamReader, StreamWriter]:
    """Connect to the checked address of `host`; with `tls`, encrypted and with `host` as the expected name.

    Raise TcpError if the address is not allowed or no connection is made within `seconds`.
    """
    local_address = (egress.source_address, 0) if egress.source_address else None
    try:
        async with asyncio.timeout(seconds):
            address, address_port = await asyncio.to_thread(resolve, host, port, egress)
            name = host if tls else None
            if egress.proxy is not None:
                tunnel = await open_tunnel(egress, address, address_port)
                return await asyncio.open_connection(
                    sock=tunnel, limit=TCP_BUFFER, ssl=tls, server_hostname=name
                )
            return await asyncio.open_connection(
                address,
                address_port,
                limit=TCP_BUFFER,
                local_addr=local_address,
                ssl=tls,
                server_hostname=name,
            )
    except EgressError as error:
        raise TcpError(error.message) from None
    except TimeoutError:
        raise TcpError(f"no connection within {seconds:g} seconds") from None
    except ssl.SSLError:
        raise TcpError("TLS failed or the certificate is not trusted") from None
    except (OSError, ValueError):
        raise TcpError("connection failed") from None


async def start_tls(writer: StreamWriter, host: str, tls: ssl.SSLContext) -> None:
    """Switch an open connection to TLS; the reader of `writer` is encrypted from then on too."""
    try:
        await writer.start_tls(tls, server_hostname=host)
    except (OSError, ValueError):  # ssl.SSLError is an OSError
        raise TcpError("TLS failed") from None


def unverified_tls_context() -> ssl.SSLContext:
    """Return a TLS context that accepts any certificate.

    Database drivers do the same where a server merely offers TLS, because most servers sign their own
    certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
