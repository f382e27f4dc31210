"""Connect aiohttp through the operator's proxy, to addresses that the guard has checked.

aiohttp's own support of proxies would send the proxy a name.
"""

import ssl
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver

from outcrop.net.guard import Egress
from outcrop.net.proxy import open_tunnel
from outcrop.net.tls import tls_context


class TunnelConnector(aiohttp.TCPConnector):
    """Makes each connection through the proxy of `egress`."""

    def __init__(self, egress: Egress, resolver: AbstractResolver, connections: int, per_host: int) -> None:
        super().__init__(
            resolver=resolver,
            ssl=tls_context(egress),
            limit=connections,
            limit_per_host=per_host,
            use_dns_cache=False,
        )
        self._egress = egress

    # aiohttp has no public way to replace how it connects. `tests/net/test_proxy.py` fails if this changes.
    async def _wrap_create_connection(self, *args: Any, addr_infos: Any, req: Any, **options: Any) -> Any:
        """Connect to the first address: the guard returns a single one."""
        address, port = addr_infos[0][4][:2]
        tunnel = await open_tunnel(self._egress, address, port)
        try:
            return await self._loop.create_connection(
                *args, sock=tunnel, ssl=options.get("ssl"), server_hostname=options.get("server_hostname")
            )
        except ssl.CertificateError as error:
            raise aiohttp.ClientConnectorCertificateError(req.connection_key, error) from error
        except ssl.SSLError as error:
            raise aiohttp.ClientConnectorSSLError(req.connection_key, error) from error
        except OSError as error:
            raise aiohttp.ClientConnectorError(req.connection_key, error) from error
