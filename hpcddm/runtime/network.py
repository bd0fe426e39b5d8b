"""Address at which the other ranks of a unit reach this node."""

import os
import socket

import psutil

from hpcddm.errors import UserError


def own_address(nodes: int, interface: str | None) -> str:
    """Return the IPv4 address of this node on the site's interface, or by its name; loopback on a single node.

    Raises `UserError` naming the site key network_interface where neither gives one.
    """
    if nodes == 1:
        return "127.0.0.1"
    if interface is None:
        return _address_of(socket.gethostname())
    for address in psutil.net_if_addrs().get(interface, []):
        if address.family == socket.AF_INET:
            return address.address
    raise UserError(
        f"site key network_interface: {socket.gethostname()} has no interface {interface} with an IPv4 address;"
        f" it has: {', '.join(psutil.net_if_addrs())}"
    )


def node_name() -> str:
    """Return the name by which Slurm knows this node."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def _address_of(host: str) -> str:
    try:
        address = socket.gethostbyname(host)
    except OSError as error:
        address = error.strerror
    else:
        if not address.startswith("127."):
            return address
    raise UserError(
        f"{host}: its name gives no address that other nodes reach ({address});"
        f" set the site key network_interface to one of: {', '.join(psutil.net_if_addrs())}"
    )
